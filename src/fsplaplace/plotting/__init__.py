"""Figures of posteriors: every function draws on the axes it is given, or on a new figure, and returns the axes.

Matplotlib is imported on the first call. A new figure belongs to nobody (`ax.figure.savefig`, or display `ax.figure`);
pass axes from `matplotlib.pyplot.subplots` to draw on a figure of yours. Settings of matplotlib are left alone.
"""

from fsplaplace.plotting._calibration import plot_calibration as plot_calibration
from fsplaplace.plotting._calibration import plot_reliability as plot_reliability
from fsplaplace.plotting._classification import plot_classification as plot_classification
from fsplaplace.plotting._history import plot_history as plot_history
from fsplaplace.plotting._prior import plot_prior as plot_prior
from fsplaplace.plotting._regression import plot_derivative as plot_derivative
from fsplaplace.plotting._regression import plot_prior_and_posterior as plot_prior_and_posterior
from fsplaplace.plotting._regression import plot_regression as plot_regression
from fsplaplace.plotting._vector_field import plot_divergence as plot_divergence
from fsplaplace.plotting._vector_field import plot_vector_field as plot_vector_field
