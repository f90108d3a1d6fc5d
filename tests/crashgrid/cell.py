"""One cell of the grid: a story, a form, a provider's fault, and the crashes that strike in it."""

from dataclasses import dataclass
from enum import StrEnum

from oncefence.simulator.faults import Fault
from tests.crashgrid.points import Action, is_in_transaction
from tests.support.dialect import Form


class Story(StrEnum):
    """What the lives of a cell want."""

    DELIVER = "deliver"
    """A handoff is accepted, sent, and investigated where need be."""
    CONTEST = "contest"
    """The same, told twice, and told wrongly: with another payload, and of another scope."""
    REJECT = "reject"
    """One life hands over what another rejects."""
    SIGNED = "signed"
    """The handoff comes through the Temporal door."""
    SETUP = "setup"
    """An operator makes the account first."""
    KIN = "kin"
    """An item of a family that has no run of its own."""
    OPERATE = "operate"
    """An operator pauses, resumes, cancels and replays."""
    CREATE = "create"
    """A record is made under the provider's idempotency key, and then asked for once more."""
    LOOK_FIRST = "look_first"
    """The same at a provider without such keys: it is looked for before each attempt."""

    RENEW = "renew"
    """The account's token must be renewed first, and what that is done with is used up by it."""
    RENEW_AGAIN = "renew_again"
    """The same, and it is not: a lost call is made again."""

    @property
    def renews(self) -> bool:
        """A call for a token comes before the send."""
        return self in (Story.RENEW, Story.RENEW_AGAIN)

    @property
    def makes_record(self) -> bool:
        """It is played at a provider of the cell's own, which has no record before."""
        return self in (Story.CREATE, Story.LOOK_FIRST)


class Thaw(StrEnum):
    """When a frozen life goes on."""

    LOST = "lost"
    """As soon as its attempt was settled as lost, or at the end where it never is."""
    END = "end"
    """When the others are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A crash that waits at a point, and strikes the first life that reaches it."""

    point: str
    action: Action
    is_scripted: bool = False
    """It belongs to the story, which without it would not come to the point that is tried."""

    def __str__(self) -> str:
        return f"{self.action}@{self.point}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One scenario. Its name is the name of its org."""

    name: str
    story: Story = Story.DELIVER
    form: Form = Form.LOCAL
    fault: Fault | None = None
    lookup_fault: Fault | None = None
    traps: tuple[Trap, ...] = ()
    thaw: Thaw = Thaw.END
    is_there: bool = False
    """Somebody else has made the record that the cell is to make."""

    @property
    def is_faultless(self) -> bool:
        """Nothing goes wrong in it, so nothing may be left in doubt."""
        return not self.traps and self.fault is None and self.lookup_fault is None

    @property
    def freezes(self) -> bool:
        """A life stands still in it."""
        return any(trap.action is Action.FREEZE for trap in self.traps)

    @property
    def needs_line(self) -> bool:
        """Something strikes on the way to the database, and not in the life itself."""
        return any(
            trap.action is Action.DROP or is_in_transaction(trap.point) for trap in self.traps
        )

    @property
    def needs_own_servers(self) -> bool:
        """What happens in it would strike the other cells too."""
        refuses_all = self.fault is Fault.REFUSE and not self.story.makes_record
        return refuses_all or any(trap.action is Action.RESTART for trap in self.traps)

    def __str__(self) -> str:
        parts = [self.name, self.story, self.form, *map(str, self.traps)]
        if self.fault is not None:
            parts.append(f"fault {self.fault}")
        if self.lookup_fault is not None:
            parts.append(f"lookup fault {self.lookup_fault}")
        if self.is_there:
            parts.append("is there already")
        if self.freezes:
            parts.append(f"thaw {self.thaw}")
        return " ".join(parts)
