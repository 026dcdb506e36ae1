"""The surrogate in Ax, whose own dispatcher decides how a model is fitted."""

from fsplaplace.botorch._model import FSPModel


def register_with_ax() -> None:
    """Tell Ax how to fit `FSPModel`: once, before it is used as `botorch_model_class`. Needs `fsplaplace[ax]`.

    The constructor fits already. Ax then loads the state of the last model and asks for a fit from there, `FSPModel.refit`;
    for cross-validation it loads the state and asks for none.

    Example:
        >>> register_with_ax()  # doctest: +SKIP
        >>> spec = SurrogateSpec(model_configs=[ModelConfig(botorch_model_class=FSPModel)])  # doctest: +SKIP
    """
    try:
        from ax.generators.torch.botorch_modular.utils import fit_botorch_model  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("register_with_ax needs Ax; install fsplaplace[ax]") from error

    @fit_botorch_model.register(FSPModel)
    def _fit(model: FSPModel, mll_class: type, mll_options: dict | None = None) -> None:
        if model.fitted_elsewhere:
            model.refit()
