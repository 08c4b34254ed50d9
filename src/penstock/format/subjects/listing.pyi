from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter
from penstock.text.json.write import Encoded

class SubjectListing:
    """A page of a table's subjects with their counts, as JSON, made in steps."""

    @property
    def total(self) -> int:
        """Subjects that the filter matches, of those that were looked at."""

    def __init__(self, wanted: SubjectFilter, offset: int, limit: int) -> None:
        """Show at most `limit` of the subjects that a filter matches, from the `offset`-th on."""

    @property
    def json(self) -> Encoded:
        """The subjects so far, as an Encoded object; an empty one if there are none."""

    def step(self, table: SubjectTable, budget: int) -> bool:
        """Look at about `budget` subjects of the table; return True if the page is complete."""
