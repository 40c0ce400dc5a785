"""Sentences from tweets, movie and product reviews and editorials, whose sentiment twenty people rated."""

import io
import tarfile
from typing import Any

import numpy as np

from studies._packages import read_member

# On a scale from -4 to 4. Below it the raters themselves do not agree on the sign.
NEUTRAL = 0.5
SOURCES = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")


def load() -> tuple[list[str], dict[str, np.ndarray[Any, Any]]]:
    """Sentences in a shuffled order with two labels: their source, and whether their mean rating is positive."""
    content = read_member("vader", "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz")
    sentences, sources, positive = [], [], []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for number, source in enumerate(SOURCES):
            file = archive.extractfile(f"hutto_ICWSM_2014/{source}_GroundTruth.txt")
            assert file is not None  # the checksum says that it is there
            for line in file.read().decode().splitlines():
                _, rating, sentence = line.split("\t", 2)
                if abs(float(rating)) < NEUTRAL:
                    continue
                sentences.append(sentence)
                sources.append(number)
                positive.append(float(rating) > 0)
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(sentences))
    labels = {"source": np.array(sources, np.int32)[order], "positive": np.array(positive, np.int32)[order]}
    return [sentences[number] for number in order], labels
