"""What stands between a request and the records: the token, the limits, the keys, the rules."""

from oncefence.simulator.commits import Ask
from oncefence.simulator.dialects.protocol import Dialect, KeyTrouble
from oncefence.simulator.exchange import Exchange
from oncefence.simulator.keys import digest_of
from oncefence.simulator.limits import Limits
from oncefence.simulator.stores import Stores
from oncefence.simulator.wire import Answer, Head, Request


class Reception:
    """Lets requests in, or says in the provider's words why not."""

    def __init__(self, *, dialect: Dialect, stores: Stores, token: str) -> None:
        self._dialect = dialect
        self._stores = stores
        self._token = token
        self.limits = Limits(stores.clock)

    def receive(
        self, exchange: Exchange, request: Request, *, account: str | None = None
    ) -> Ask | Answer:
        """What a valid request asks for in an account, or the answer that it gets."""
        refused = self._dialect.unauthorized(request.head, self._token)
        if refused is None and account is None:
            refused = self._count(exchange, request.head)
        if refused is not None:
            return refused
        digest = digest_of(self._dialect.fingerprint(request))
        if exchange.mark.key is not None:
            # Before anything is judged: what is kept is answered, whatever became of the record.
            earlier = self._stores.keys.look(account, exchange.mark.key, digest)
            if isinstance(earlier, KeyTrouble):
                return self._dialect.key_trouble(earlier)
            if earlier is not None:
                return earlier
        contacts = self._stores.contacts_of(account)
        asked = self._dialect.judge(request, contacts)
        if isinstance(asked, Answer):
            return asked
        return Ask(asked=asked, contacts=contacts, account=account, digest=digest)

    def _count(self, exchange: Exchange, head: Head) -> Answer | None:
        window = self._dialect.window(self._dialect.target(head))
        if window is None:
            return None
        room = self.limits.ask(window)
        if window.is_shown:
            exchange.rate_headers = self._dialect.rate_headers(room.left, room.resets_at)
        if room.is_let_in:
            return None
        now = self._stores.clock.now()
        return self._dialect.limited(window.limit, {}, now, resets_at=room.resets_at)
