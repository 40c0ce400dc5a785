"""The rooms that know SQLAlchemy. Rows stay inside, frozen records come out; the records alone load no SQLAlchemy."""

from typing import TYPE_CHECKING, Any

from tuner.store.owner import Owner as Owner
from tuner.store.records import CandidateRecord as CandidateRecord
from tuner.store.records import StudyCounts as StudyCounts
from tuner.store.records import StudyRecord as StudyRecord

if TYPE_CHECKING:
    from tuner.store.store import Store as Store
else:

    def __getattr__(name: str) -> Any:
        if name != "Store":
            raise AttributeError(f"module 'tuner.store' has no attribute {name!r}")
        from tuner.store.store import Store

        globals()[name] = Store
        return Store
