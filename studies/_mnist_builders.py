"""Builders of Fashion-MNIST and MNIST that need no TensorFlow and, where need be, no network."""

import gzip
import io
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow_datasets
from PIL import Image
from tensorflow_datasets.image_classification import mnist

import tuner.data
from studies._cache import cache_folder, console
from studies._packages import FETCH, FETCH_ALL
from tuner.errors import InputError, error_line
from tuner.tfds_source import DAMAGED as DAMAGED

NAMES = ("fashion_mnist", "mnist")
# Where the Debian package dataset-fashion-mnist puts its files.
INSTALLED = Path("/usr/share/datasets/fashion-mnist")
# The files, and the time that the gzip header of each official one carries.
FILES = {
    "train-images-idx3-ubyte.gz": 1504176606,
    "train-labels-idx1-ubyte.gz": 1504176606,
    "t10k-images-idx3-ubyte.gz": 1504176627,
    "t10k-labels-idx1-ubyte.gz": 1504176627,
}


def read_split(name: str, split: str) -> dict[str, np.ndarray[Any, Any]]:
    """`images` (28 x 28 bytes each) and `labels` of one split, as tensorflow-datasets gives them."""
    builder = make_builder(name)
    if not is_prepared(builder) and name == "fashion_mnist" and INSTALLED.is_dir():
        prepare_from_debian(builder, INSTALLED)
    if not is_prepared(builder):
        raise InputError(f"the data set {name} is not in {builder.data_path}; run {_remedy(name)} once to fetch it")
    try:
        batches = list(tuner.data.tfds(builder, split=split))
    except (*DAMAGED, InputError) as error:
        raise InputError(
            f"the data set {name} in {builder.data_path} is damaged ({error.__cause__ or error}); run {_remedy(name)} to build it again"
        ) from error
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return {"images": images[..., 0], "labels": labels.astype(np.int32)}


def _remedy(name: str) -> str:
    """The commands that make a data set ready; MNIST can only be had from its own host, and is fetched by name alone."""
    command = f"`{FETCH} {name}`"
    return command if name == "mnist" else f"`{FETCH_ALL}`, or {command},"


class _WithoutTensorFlow:
    """Overrides of the MNIST builders where those call TensorFlow."""

    def _split_generators(self, downloads: Any) -> Any:
        # The files stay compressed: extracting them is TensorFlow's part.
        return super()._split_generators(  # type: ignore[misc]  # the builder's
            SimpleNamespace(download_and_extract=downloads.download)
        )

    def _generate_examples(
        self, num_examples: int, data_path: Any, label_path: Any
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        images, labels = read_idx(Path(data_path)), read_idx(Path(label_path))
        if len(images) != num_examples or len(labels) != num_examples:
            raise ValueError(f"expected {num_examples} examples, found {len(images)} images and {len(labels)} labels")
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield number, {"image": Image.fromarray(image), "label": int(label)}  # writing an array needs TensorFlow


class _FashionMNIST(_WithoutTensorFlow, mnist.FashionMNIST, skip_registration=True):  # type: ignore[misc, call-arg]  # untyped
    name = "fashion_mnist"
    url_infos = mnist.FashionMNIST.url_infos  # the official checksums, which are looked up beside the class's own file


class _MNIST(_WithoutTensorFlow, mnist.MNIST, skip_registration=True):  # type: ignore[misc, call-arg]  # untyped
    name = "mnist"
    url_infos = mnist.MNIST.url_infos


def make_builder(name: str) -> Any:
    """The builder of a data set, at home in our cache folder."""
    builder = {"fashion_mnist": _FashionMNIST, "mnist": _MNIST}[name]
    # Only array_record can be read without TensorFlow.
    return builder(data_dir=cache_folder("tensorflow_datasets"), file_format="array_record")


def is_prepared(builder: Any) -> bool:
    """True when the data set was built completely (the builder writes its description last)."""
    return bool((builder.data_path / "dataset_info.json").exists())


def prepare(builder: Any, files: Path | None = None) -> None:
    """Builds the data set from the official files in a folder, or from the network; their checksums are verified."""
    tensorflow_datasets.disable_progress_bar()
    config = tensorflow_datasets.download.DownloadConfig(
        manual_dir=files, try_download_gcs=False, force_checksums_validation=True
    )
    with temporary_folder() as downloads, console.status(f"preparing {builder.name}"), redirect_stdout(io.StringIO()):
        try:
            builder.download_and_prepare(download_dir=downloads, download_config=config)
        except tensorflow_datasets.download.download_manager.NonMatchingChecksumError as error:
            raise InputError(
                f"a file of {builder.name} is not the official one: {str(error).splitlines()[0].rstrip(':')}; reinstall "
                "the Debian package dataset-fashion-mnist, or fetch where the network hands files on unchanged"
            ) from error
        except (OSError, tensorflow_datasets.download.DownloadError) as error:
            raise InputError(
                f"{builder.name} cannot be built in {builder.data_path}: {error_line(error)}; check the room on the disk "
                f"and the network, then run `{FETCH} {builder.name}` again"
            ) from error
    console.print(f"prepared {builder.name} in {builder.data_path}")


def prepare_from_debian(builder: Any, folder: Path) -> None:
    """Builds the data set from the files of the Debian package, made byte for byte the official ones again."""
    with temporary_folder() as official:
        for name, time in FILES.items():
            (official / name).write_bytes(restore_header((folder / name).read_bytes(), name, time))
        prepare(builder, official)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder in the cache, where there is room for a data set, gone afterwards."""
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        yield Path(folder)


def restore_header(compressed: bytes, name: str, time: int) -> bytes:
    """The same gzip stream under the header that the official file has: Debian drops its name and time."""
    flags_of_a_name = 8
    header = struct.pack("<BBBBIBB", 0x1F, 0x8B, 8, flags_of_a_name, time, 0, 3)
    return header + name.removesuffix(".gz").encode() + b"\0" + compressed[10:]


def read_idx(path: Path) -> np.ndarray[Any, Any]:
    """The array of bytes in a gzip-compressed IDX file."""
    content = gzip.decompress(path.read_bytes())
    rank = content[3]
    shape = struct.unpack_from(f">{rank}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)
