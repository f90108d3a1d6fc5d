"""Which of a pack's writes and reads a request is, and the values that its head holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oncefence.simulator.dialects.pack_file import LookupRule, OperationRule, Pack
from oncefence.simulator.dialects.pack_templates import path_matched, query_matched
from oncefence.simulator.marks import Operation
from oncefence.simulator.wire import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One way in: a write, or with `lookup` the read that looks for it."""

    name: str
    rule: OperationRule
    lookup: LookupRule | None = None

    @property
    def operation(self) -> Operation:
        """What a request by this route asks for."""
        if self.lookup is not None:
            return Operation.READ if self.lookup.kind == "by_id" else Operation.SEARCH
        return Operation.CREATE if self.rule.kind == "create" else Operation.UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request that a route takes, with the variables of its path and query."""

    route: Route
    values: Mapping[str, str]


class Routes:
    """All routes of a pack; where several take a request, the one that names most of its query."""

    def __init__(self, pack: Pack) -> None:
        self._routes = [
            *(Route(name=name, rule=rule) for name, rule in pack.operations.items()),
            *(
                Route(name=name, rule=rule, lookup=rule.lookup)
                for name, rule in pack.operations.items()
                if rule.lookup is not None
            ),
        ]

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def arrivals(self, head: Head) -> list[Arrival]:
        """Every route that may take the request, the likeliest first."""
        query = dict(head.query)
        taken = []
        for route in self._routes:
            shape = route.lookup or route.rule
            templates = shape.query if isinstance(shape, LookupRule) else shape.request.query
            if shape.method != head.method:
                continue
            in_path, in_query = path_matched(shape.path, head.path), query_matched(templates, query)
            if in_path is not None and in_query is not None:
                taken.append((len(templates), Arrival(route=route, values=in_path | in_query)))
        return [arrival for _, arrival in sorted(taken, key=lambda each: -each[0])]

    def knows_path(self, head: Head) -> bool:
        """Some route has this path, by whatever method and query."""
        return any(
            path_matched((route.lookup or route.rule).path, head.path) is not None
            for route in self._routes
        )
