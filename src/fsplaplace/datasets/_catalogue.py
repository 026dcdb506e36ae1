"""What is known of each data set: its files with their SHA-256, their origin, what the numbers mean."""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file: where it lies in a mirror, what its bytes hash to, and where it can be downloaded.

    - `url`: a public address of the file; None for a table that was converted from its source, which only a
      mirror can hold.
    - `download_sha256`: set where the address serves the same content in another gzip wrapper; then either
      hash is accepted.
    """

    path: str
    sha256: str
    url: str | None = None
    download_sha256: str | None = None


@dataclass(frozen=True)
class Entry:
    """One data set. `reader` names the function of `_readers` that turns its files into arrays."""

    reader: str
    files: tuple[File, ...]
    source: str
    target_name: str
    units: str
    description: str
    note: str = ""
    class_names: tuple[str, ...] = ()


def names() -> tuple[str, ...]:
    """Names that `load` accepts."""
    return tuple(CATALOGUE)


def entry(name: str) -> Entry:
    """What the catalogue says about a data set: files, hashes, sources."""
    if name not in CATALOGUE:
        raise ValueError(f"there is no dataset {name!r}; pass one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


# NOAA rewrites its file every month, so the bytes of one month are only found in copies that others pinned.
_CO2 = Entry(
    reader="co2",
    files=(
        File(
            "co2/co2_mm_mlo.csv",
            "c0d4f8d8b4dcf6efdf205365e84444c76fae65700e04b80b41174192069a76a1",
            "https://raw.githubusercontent.com/noahrsn/Degrees-of-No-Return-App/"
            "cc5efbb21c3beccf89aaaed549d05cd4fbb0f6fb/data/co2_mm_mlo.csv",
        ),
    ),
    source="https://gml.noaa.gov/webdata/ccgg/trends/co2/co2_mm_mlo.csv",
    target_name="monthly mean CO2",
    units="input: decimal year; target: ppm",
    description="Monthly mean CO2 at Mauna Loa, March 1958 to January 2026 (NOAA; Scripps until April 1974).",
    note=(
        "NOAA's file of 2026-02-05; later files may revise the most recent months. December 1975 and April "
        "1984 are interpolated. The paper's period, 1974 to 2024, is the 608 months from May 1974 to "
        "December 2024."
    ),
)

_GULF_URL = (
    "https://raw.githubusercontent.com/JaxGaussianProcesses/static/3e2ae250c3d6105bcad610cdf0f651c9d2737c4b/data/"
)
_GULFDRIFTERS = Entry(
    reader="gulfdrifters",
    files=(
        File(
            "gulfdrifters/gulfdata_train.csv",
            "dcd75987abb9fb1c35dd3d76c724f330523b1af236fa0a2b113ab0e8b8912751",
            _GULF_URL + "gulfdata_train.csv",
        ),
        File(
            "gulfdrifters/gulfdata_test.csv",
            "f4e50eec95fabc687795f3b2021c310fccd1f473e5dadefc653763af6663ab24",
            _GULF_URL + "gulfdata_test.csv",
        ),
    ),
    source="GulfDrifters, https://zenodo.org/record/4421585, processed as in Berlinghieri et al. (2023)",
    target_name="surface velocity (ubar, vbar)",
    units="inputs: degrees; targets: velocity unit not stated in the files",
    description="Ocean surface velocities in the Gulf of Mexico: 20 drifter readings, test grid of 34 x 16.",
    note="The training velocities are simulated readings of the binned real field; the test grid is real.",
)


def _idx_files(folder: str, url: str, hashes: dict[str, tuple[str, ...]]) -> tuple[File, ...]:
    return tuple(File(f"{folder}/{file}", own[0], url + file, *own[1:]) for file, own in hashes.items())


# Second hash: the gzip files of the original authors. The first wraps the same idx bytes and is smaller.
_MNIST = Entry(
    reader="images",
    files=_idx_files(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": (
                "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            "train-labels-idx1-ubyte.gz": (
                "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            "t10k-images-idx3-ubyte.gz": (
                "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        },
    ),
    source="http://yann.lecun.com/exdb/mnist/",
    target_name="digit",
    units="inputs: grey level in [0, 1]; target: class index",
    description="MNIST: 60,000 training and 10,000 test images of handwritten digits.",
    class_names=tuple("0123456789"),
)

_FASHION_MNIST = Entry(
    reader="images",
    files=_idx_files(
        "fashion_mnist",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        {
            "train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",),
            "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",),
            "t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",),
            "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",),
        },
    ),
    source="https://github.com/zalandoresearch/fashion-mnist",
    target_name="garment",
    units="inputs: grey level in [0, 1]; target: class index",
    description="FashionMNIST: 60,000 training and 10,000 test images of clothing.",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
)

_KMNIST = Entry(
    reader="images",
    files=_idx_files(
        "kmnist",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        {
            "t10k-images-idx3-ubyte.gz": ("edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",),
            "t10k-labels-idx1-ubyte.gz": ("20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",),
        },
    ),
    source="http://codh.rois.ac.jp/kmnist/",
    target_name="character",
    units="inputs: grey level in [0, 1]; target: class index",
    description="Kuzushiji-MNIST: the 10,000 test images of cursive Japanese characters.",
    note=(
        "X and y are KMNIST's test split; its 60,000 training images are not included, so context points "
        "drawn from it may differ from the paper's."
    ),
    class_names=tuple("おきすつなはまやれを"),
)


def _table(file: str, sha256: str, source: str, target: str, units: str, description: str, note: str = "") -> Entry:
    files = (File(f"uci/{file}.csv.gz", sha256),)
    return Entry("table", files, source, target, f"as in the source; target: {units}", description, note)


_UCI = "https://archive.ics.uci.edu/dataset/"

_COLLECTION = "As in the collection uci_datasets of T. Evans, where some features are standardised."

CATALOGUE = {
    "co2": _CO2,
    "gulfdrifters": _GULFDRIFTERS,
    "mnist": _MNIST,
    "fashion_mnist": _FASHION_MNIST,
    "kmnist": _KMNIST,
    "boston": _table(
        "boston",
        "bdadb3287834db0780130f26a16d511d2489f45475dfed78cd2bf4f2f0b336b6",
        "http://lib.stat.cmu.edu/datasets/boston",
        "median home value",
        "1000 USD",
        "Boston housing: 506 census tracts, 13 features.",
    ),
    "concrete": _table(
        "concrete",
        "d000e796c3dd162550f75b84d47cd1de9f98a02e2a4cdb53cb0169e9cc14c66c",
        _UCI + "165/concrete+compressive+strength",
        "compressive strength",
        "MPa",
        "Concrete compressive strength: 1,030 mixtures, 8 features.",
        "25 rows are duplicates, as in the source.",
    ),
    "energy": _table(
        "energy",
        "526ea26d4fdc98586ecc526d5126b5048afc89de621f3e0bb84586de021484a5",
        _UCI + "242/energy+efficiency",
        "heating load",
        "unit not stated",
        "Energy efficiency: 768 simulated buildings, 8 features.",
        "Target is the heating load; the cooling load is dropped.",
    ),
    "kin8nm": _table(
        "kin8nm",
        "0bfc160393b078105a841ad00b321b03d5799b7600ec1b5a4f774ed93761bf40",
        "https://www.cs.toronto.edu/~delve/data/kin/desc.html",
        "distance of the end effector",
        "dimensionless",
        "Forward kinematics of an 8-link robot arm: 8,192 simulated poses, 8 features.",
    ),
    "naval": _table(
        "naval",
        "99ec674f47ec3a0628fedf7adcb5fad390d7043a832ca31da897139b3ed062d8",
        _UCI + "316/condition+based+maintenance+of+naval+propulsion+plants",
        "compressor decay coefficient",
        "dimensionless",
        "Naval propulsion plants: 11,934 simulated states, 16 features.",
        "Two features are constant (compressor inlet temperature and pressure) and two are equal (starboard "
        "and port propeller torque); the turbine decay coefficient is dropped.",
    ),
    "power": _table(
        "power",
        "a5c1c9ebe84fc4e39bb4c1ed41d3116bd88b5797e254e3682fb379239a5c3448",
        _UCI + "294/combined+cycle+power+plant",
        "electrical output",
        "MW",
        "Combined cycle power plant: 9,568 hours, 4 features.",
        "41 rows are duplicates, as in the source; row order is that of the workbook's fifth sheet.",
    ),
    "protein": _table(
        "protein",
        "5dafcc9ce4127885ce5db37383ffe8c4706738d0f9483eb9f0521a44b717f81c",
        _UCI + "265/physicochemical+properties+of+protein+tertiary+structure",
        "RMSD",
        "angstrom",
        "Protein tertiary structure (CASP): 45,730 decoys, 9 features.",
        "1,711 rows are duplicates, as in the source.",
    ),
    "wine": _table(
        "wine_red",
        "195a53201e2a5f2161a834459c2f695d5f6a1676bc65dca8090336800eef03ca",
        _UCI + "186/wine+quality",
        "quality",
        "score, 3 to 8",
        "Wine quality, red wines: 1,599 wines, 11 features.",
        "240 rows are duplicates, as in the source.",
    ),
    "yacht": _table(
        "yacht",
        "664d7592247365f3959ddb830605aca1d8e787d5cfd81d6b791f05ac447f5081",
        _UCI + "243/yacht+hydrodynamics",
        "residuary resistance",
        "dimensionless",
        "Yacht hydrodynamics: 308 towing experiments, 6 features.",
    ),
    "denmark": _table(
        "denmark_3droad_subset5000",
        "409cb8493f0b77e64288605037a66338e1cd9ba681f33d324577ae92563f9e60",
        _UCI + "246/3d+road+network+north+jutland+denmark",
        "altitude",
        "m",
        "Road network of North Jutland: longitude and latitude of 5,000 road points.",
        "Subset: 5,000 of 434,874 rows, starting with the first rows of the source, not a random sample. "
        "Scores are not comparable with published ones on the full set.",
    ),
    "song": _table(
        "song_year_msd_subset1176",
        "f195dd67063ba9f7afbb5e21d3a3367048f7535efefbea7558ba097e8b25a554",
        _UCI + "203/yearpredictionmsd",
        "year",
        "year of release",
        "YearPredictionMSD: 1,176 songs, 90 timbre features.",
        "Subset: 1,176 of 515,345 rows, not a random sample; meant as out-of-distribution inputs. Scores are "
        "not comparable with published ones on the full set.",
    ),
    "parkinsons": _table(
        "parkinsons",
        "3aa8cd9208d7f700e2608d182a2d62bbdee099df55cf22e0b90a2bb036b25b64",
        _UCI + "189/parkinsons+telemonitoring",
        "disease score",
        "as in the collection",
        "Parkinsons telemonitoring: 5,875 voice recordings, 20 features.",
        _COLLECTION,
    ),
    "sml": _table(
        "sml",
        "287d735d3c15d26bb3c968bcd4650cb736c57521d4a6c8142372b63b09da5ed7",
        _UCI + "274/sml2010",
        "indoor temperature",
        "as in the collection",
        "SML2010: 4,137 readings in a house, 26 features.",
        _COLLECTION,
    ),
    "pumadyn32nm": _table(
        "pumadyn32nm",
        "bb0141010b60826450415744f51c310211835bc9d462a8a242b4dcd0b64b35d9",
        "https://www.cs.toronto.edu/~delve/data/pumadyn/desc.html",
        "acceleration of a joint",
        "as in the collection",
        "Dynamics of a robot arm: 8,192 simulated states, 32 features.",
        _COLLECTION,
    ),
    "bike": _table(
        "bike",
        "a91ee186dcc206cd1b40c80a2d2aca2e4b7f01c8da7d41787b685363959152ed",
        _UCI + "275/bike+sharing+dataset",
        "rides in an hour",
        "as in the collection",
        "Bike sharing: 17,379 hours, 17 features.",
        f"{_COLLECTION} The last two features, x15 and x16, are parts of the target: leave them out.",
    ),
}
