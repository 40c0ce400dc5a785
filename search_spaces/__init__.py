"""What may be assigned: number formats, precisions, and the spaces a search chooses from. Loads no jax."""

from search_spaces.errors import SearchSpaceError as SearchSpaceError
from search_spaces.formats import FORMATS as FORMATS
from search_spaces.formats import Format as Format
from search_spaces.formats import parse_format as parse_format
from search_spaces.precision import ORIGINAL as ORIGINAL
from search_spaces.precision import Precision as Precision
from search_spaces.resolution import Resolution as Resolution
from search_spaces.rules import Group as Group
from search_spaces.rules import Rule as Rule
from search_spaces.space import SearchSpace as SearchSpace
from search_spaces.space import describe_preset as describe_preset
from search_spaces.space import preset_names as preset_names
from search_spaces.space import preset_text as preset_text
