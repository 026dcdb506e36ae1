"""FashionMNIST: the paper's image table, with MNIST as the foreign images."""

from fsplaplace.experiments.images import ImageTable


class FashionMNIST(ImageTable):
    """Articles of clothing."""

    name = "fashion-mnist"
    title = "FashionMNIST: classification, calibration and foreign images with a convolutional network"
    dataset = "fashion_mnist"
    ensemble_of_ten = (-0.200, 0.932)
    # Five epochs leave the log density of validation labels at -0.27, ten at -0.22.
    presets = ImageTable.presets | {"cpu": ImageTable.presets["cpu"] | {"epochs": 10}}
    printed = {  # noqa: RUF012 - a constant of the class
        "expected_log_likelihood": (
            (-0.255, 0.002), (-0.259, 0.003), (-0.311, 0.005), (-0.300, 0.002), (-0.290, 0.006), (-0.281, 0.002),
            (-0.479, 0.002),
        ),
        "accuracy": (
            (0.909, 0.001), (0.909, 0.001), (0.906, 0.002), (0.910, 0.002), (0.897, 0.002), (0.900, 0.001),
            (0.848, 0.001),
        ),
        "ece": (
            (0.018, 0.002), (0.020, 0.003), (0.024, 0.002), (0.027, 0.005), (0.014, 0.002), (0.016, 0.002),
            (0.027, 0.001),
        ),
        "ood_accuracy": (
            (0.994, 0.001), (0.797, 0.007), (0.975, 0.002), (0.925, 0.005), (0.801, 0.014), (0.794, 0.010),
            (0.938, 0.007),
        ),
    }  # fmt: skip


EXPERIMENT = FashionMNIST()
