"""MNIST: the paper's image table, with FashionMNIST as the foreign images."""

from fsplaplace.experiments.images import ImageTable


class MNIST(ImageTable):
    """Handwritten digits."""

    name = "mnist"
    title = "MNIST: classification, calibration and foreign images with a convolutional network"
    dataset = "mnist"
    # The variances and the number of validation images that its finished cells were chosen with.
    _chosen_with = {"variances": [0.01, 0.03, 0.1, 0.3, 1.0]}  # noqa: RUF012
    presets = ImageTable.presets | {
        "cpu": ImageTable.presets["cpu"]
        | {
            "last_layer": ImageTable.presets["cpu"]["last_layer"] | _chosen_with,
            "all_weights": ImageTable.presets["cpu"]["all_weights"] | _chosen_with,
        }
    }
    ensemble_of_ten = (-0.016, 0.994)
    notes = (
        *ImageTable.notes,
        "The posteriors of the last layer were finished under an earlier rule: the variance with the best log predictive density of "
        "validation labels, and the prior of the training alone.",
    )
    printed = {  # noqa: RUF012 - a constant of the class
        "expected_log_likelihood": (
            (-0.043, 0.001), (-0.037, 0.001), (-0.238, 0.006), (-0.145, 0.005), (-0.043, 0.001), (-0.039, 0.001),
            (-0.301, 0.002),
        ),
        "accuracy": (
            (0.989, 0.000), (0.989, 0.000), (0.943, 0.001), (0.976, 0.001), (0.989, 0.001), (0.987, 0.000),
            (0.930, 0.001),
        ),
        "ece": (
            (0.002, 0.000), (0.002, 0.000), (0.073, 0.003), (0.064, 0.001), (0.013, 0.001), (0.003, 0.000),
            (0.035, 0.001),
        ),
        "ood_accuracy": (
            (0.977, 0.003), (0.895, 0.011), (0.891, 0.006), (0.894, 0.010), (0.907, 0.016), (0.889, 0.009),
            (0.904, 0.020),
        ),
    }  # fmt: skip


EXPERIMENT = MNIST()
