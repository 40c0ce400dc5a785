import numpy as np
import pytest

from studies import _vader
from tuner.errors import InputError


def test_sentences_come_shuffled_with_both_labels():
    try:
        sentences, labels = _vader.load()
    except InputError as error:
        pytest.skip(str(error))
    assert len(sentences) == len(labels["source"]) == len(labels["positive"]) > 19000
    assert sorted(np.unique(labels["source"][:100])) == [0, 1, 2, 3]
    assert 0.4 < labels["positive"].mean() < 0.6
    assert sentences == _vader.load()[0]
