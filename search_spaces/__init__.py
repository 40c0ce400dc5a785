"""What may be assigned: number formats, precisions, and the spaces a search chooses from. Loads no jax."""

from search_spaces.errors import SearchSpaceError as SearchSpaceError
from search_spaces.formats import FORMATS as FORMATS
from search_spaces.formats import Format as Format
from search_spaces.formats import parse_format as parse_format
from search_spaces.precision import ORIGINAL as ORIGINAL
from search_spaces.precision import Precision as Precision
