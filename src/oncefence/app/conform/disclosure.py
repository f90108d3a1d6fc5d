"""Where the token must not be: in what is frozen, sent besides, kept or shown."""

import json

from oncefence.app.conform.bending import Bend
from oncefence.app.conform.check import Check
from oncefence.app.conform.product import Looked, Sent
from oncefence.app.conform.scene import Bench
from oncefence.simulator.faults import Fault


async def _stays_hidden(bench: Bench) -> None:
    async with bench.scene() as scene:
        token = scene.stage.token.reveal()
        plain = await scene.attempt("plain")
        # A provider that repeats the credential in its message must not have it kept with it.
        scene.stage.script(Fault.REJECT_400)
        with scene.stage.bent(Bend(words=token)):
            refused = await scene.attempt("a refusal that repeats the token")
        texts = {
            "what was sent": _of_request(plain.sent),
            "what is kept of a success": _kept(plain.sent),
            "what is kept of a refusal": _kept(refused.sent),
            "the provider's ledger": repr(scene.stage.ledger),
            "the pack's view": bench.subject.view.to_json(),
        }
        if bench.subject.operation.lookup is not None:
            looked = await scene.look("looked for", plain.sent)
            texts["what was looked for"] = _of_lookup(looked)
        for place, text in texts.items():
            bench.trial.expect(token not in text, f"the token is in {place}")
        bench.trial.saw("searched for the token", {"places": len(texts)})


def _of_request(sent: Sent) -> str:
    request = sent.request
    return repr((request.method, request.target, request.headers, request.body))


def _kept(sent: Sent) -> str:
    end = sent.end
    return json.dumps([dict(end.receipt), dict(end.phases), sent.facts()]) + repr(sent)


def _of_lookup(looked: Looked) -> str:
    request, end = looked.request, looked.end
    return repr((request.target, request.headers, end))


CHECKS = (
    Check(
        name="token.hidden",
        claim="the token is in no target, body, receipt or evidence, though the provider tells it",
        run=_stays_hidden,
        after=("success.accepted",),
    ),
)
