"""Rules strike whom they name and as often as they say; a seed is deaf to the order."""

import asyncio
import random
import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from oncefence.simulator.dealing import SeededFaults, TurnedFaults
from oncefence.simulator.faults import SEEDED_FAULTS, Fault, ScriptedFault
from oncefence.simulator.ledger import Kind
from tests.providers.simulated import (
    Simulated,
    patch_bytes,
    request_bytes,
    simulator_at,
    talk,
    until,
)


class TestMatching:
    def test_by_the_nth_request_of_a_contact(self, simulator: Simulated) -> None:
        """Other contacts and lookups do not move the count."""
        contact, other = simulator.contact(), simulator.contact()
        simulator.script(fault="rate_limit_429", contact=contact, nth=2)

        first = simulator.patch(contact)
        simulator.patch(other)
        simulator.get(contact)

        assert first.status == 200
        assert simulator.patch(contact).status == 429
        assert simulator.patch(contact).status == 200

    def test_by_command(self, simulator: Simulated) -> None:
        """A rule can name a command, whatever record it goes to."""
        contact = simulator.contact()
        simulator.script(fault="rate_limit_429", command="the-one")

        assert simulator.patch(contact, command="another").status == 200
        assert simulator.patch(contact, command="the-one").status == 429

    def test_by_what_a_request_asks_for(self, simulator: Simulated) -> None:
        """Each kind of request can be struck alone, whatever its method is here."""
        contact = simulator.contact()
        simulator.script(fault="rate_limit_429", operation="read")
        simulator.script(fault="rate_limit_429", operation="create")

        assert simulator.patch(contact).status == 200
        assert simulator.get(contact).status == 429
        made = request_bytes("POST", "/crm/v3/objects/contacts", b'{"properties":{"jobtitle":"x"}}')
        assert [simulator.talk(made).status for _ in range(2)] == [429, 201]

    def test_by_default_means_whatever_writes(self, simulator: Simulated) -> None:
        """A create is written like a change; a search by the same method is none."""
        search = request_bytes("POST", "/crm/v3/objects/contacts/search", b"{}")
        made = request_bytes("POST", "/crm/v3/objects/contacts", b'{"properties":{"city":"x"}}')
        simulator.script(fault="rate_limit_429")

        assert [simulator.talk(each).status for each in (search, made)] == [200, 429]

    def test_as_often_as_it_says(self, simulator: Simulated) -> None:
        """`times` counts the faults that fired."""
        contact = simulator.contact()
        simulator.script(fault="rate_limit_429", contact=contact, times=2)

        assert [simulator.patch(contact).status for _ in range(3)] == [429, 429, 200]

    def test_in_the_order_of_the_rules(self, simulator: Simulated) -> None:
        """The first rule that matches strikes; the second waits for its turn."""
        contact = simulator.contact()
        simulator.script(fault="rate_limit_429", contact=contact)
        simulator.script(fault="server_error_before_commit", contact=contact)

        assert [simulator.patch(contact).status for _ in range(3)] == [429, 500, 200]

    async def test_of_one_rule_by_requests_at_once(self, simulator: Simulated) -> None:
        """Requests that race for one rule never share it."""
        contact = simulator.contact()
        simulator.script(fault="rate_limit_429", contact=contact, times=3)

        heard = await asyncio.gather(
            *(asyncio.to_thread(simulator.patch, contact) for _ in range(10))
        )

        assert Counter(each.status for each in heard) == {429: 3, 200: 7}

    def test_shows_what_is_left(self, simulator: Simulated) -> None:
        """The state says how much of each rule is to come."""
        contact = simulator.contact()
        rule_id = simulator.script(fault="rate_limit_429", contact=contact, times=2)
        simulator.patch(contact)

        [rule] = [rule for rule in simulator.admin("/state")["rules"] if rule["id"] == rule_id]
        assert rule["left"] == 1


class TestHolds:
    async def test_keep_a_request_read_and_unanswered(self, simulator: Simulated) -> None:
        """While it is held the ledger shows it in flight; released, it is answered."""
        contact = simulator.contact()
        simulator.admin("/hold", {"hold": f"h{contact}", "contact": contact})
        answer = asyncio.create_task(asyncio.to_thread(simulator.patch, contact, command="held"))
        await asyncio.to_thread(until, lambda: simulator.rows(contact, Kind.HELD))

        in_flight = simulator.ledger.read_and_unanswered(only_open=True)
        released = simulator.admin("/release", {"hold": f"h{contact}"})

        assert ("held", contact, False) in in_flight
        assert released == {"released": 1}
        assert (await answer).status == 200
        assert simulator.title(contact) == "after"

    @pytest.mark.parametrize(("hold_at", "title"), [("read", "before"), ("commit", "after")])
    def test_end_with_a_client_that_is_killed(
        self, simulator: Simulated, hold_at: str, title: str
    ) -> None:
        """Whether the change of a killed client was applied is for the script to say."""
        contact = simulator.contact()
        rule = {"hold": f"k{contact}", "contact": contact, "hold_at": hold_at}
        simulator.admin("/hold", rule)

        with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as client:
            client.sendall(patch_bytes(contact, command=f"killed-{hold_at}"))
            until(lambda: simulator.rows(contact, Kind.HELD))
        until(lambda: simulator.rows(contact, Kind.CLOSED))

        assert simulator.title(contact) == title
        unanswered = simulator.ledger.read_and_unanswered()
        assert (f"killed-{hold_at}", contact, title == "after") in unanswered
        assert contact not in [
            each.contact for each in simulator.ledger.read_and_unanswered(only_open=True)
        ]

    async def test_come_before_the_fault(self, simulator: Simulated) -> None:
        """A held request breaks as scripted once it is let go."""
        contact = simulator.contact()
        simulator.script(fault="reset_after_commit", contact=contact, hold=f"f{contact}")
        answer = asyncio.create_task(asyncio.to_thread(simulator.patch, contact))
        await asyncio.to_thread(until, lambda: simulator.rows(contact, Kind.HELD))
        fired_while_held = simulator.rows(contact, Kind.FAULT)

        simulator.admin("/release", {"hold": f"f{contact}"})

        assert not fired_while_held
        assert (await answer).end == "reset"
        assert simulator.title(contact) == "after"

    def test_once_released_hold_nobody(self, simulator: Simulated) -> None:
        """A release ends the rule, also for those who come later."""
        contact = simulator.contact()
        rule = {"hold": f"n{contact}", "contact": contact, "times": 5}
        simulator.admin("/hold", rule)

        simulator.admin("/release", {"hold": f"n{contact}"})

        assert simulator.patch(contact).status == 200


class TestRefuse:
    def test_resets_the_next_connections_at_accept(self, simulator: Simulated) -> None:
        """So many connections, by order alone; the ledger counts each."""
        contact = simulator.contact()
        before = simulator.ledger.faults_fired().get("refuse", 0)
        simulator.script(fault="refuse", times=2)

        ends = [simulator.patch(contact).end for _ in range(3)]

        assert ends == ["reset", "reset", "closed"]
        assert simulator.ledger.faults_fired()["refuse"] == before + 2
        assert len(simulator.rows(contact, Kind.READ)) == 1

    def test_is_armed_by_an_answered_contact(self, simulator: Simulated) -> None:
        """The first connection after that answer is the one that is reset."""
        contact = simulator.contact()
        simulator.script(fault="refuse", after_contact=contact)

        assert simulator.patch(contact, "one").status == 200
        assert simulator.patch(contact, "two").end == "reset"
        assert simulator.patch(contact, "three").status == 200

    @pytest.mark.parametrize("by", ["rule", "admin"])
    def test_closes_the_port_for_a_time(self, simulator: Simulated, by: str) -> None:
        """The connection itself is refused, and the port is the same when it is open again."""
        contact = simulator.contact()
        before = simulator.ledger.faults_fired().get("refuse", 0)
        began = time.monotonic()
        if by == "rule":
            simulator.script(fault="refuse", refuse_for_s=0.3)
        else:
            simulator.admin("/close-listener", {"for_s": 0.3})

        refused = simulator.patch(contact)
        until(lambda: talk(simulator.port, patch_bytes(contact)).status == 200)

        assert refused.end == "refused"
        assert time.monotonic() - began >= 0.3
        assert simulator.ledger.faults_fired()["refuse"] == before + 1

    def test_opens_the_port_before_its_time(self, simulator: Simulated) -> None:
        """Whoever has seen the refusal that was wanted need not wait; twice is as good as once."""
        contact = simulator.contact()
        simulator.admin("/close-listener", {"for_s": 60})
        refused = simulator.patch(contact)

        opened = [simulator.admin("/open-listener", {}) for _ in range(2)]

        assert refused.end == "refused"
        assert [answer["was_closed"] for answer in opened] == [True, False]
        assert simulator.patch(contact).status == 200

    def test_closing_leaves_requests_in_flight_alone(self, simulator: Simulated) -> None:
        """A closed port refuses newcomers only."""
        contact = simulator.contact()
        simulator.script(fault="late_answer", contact=contact, delay_s=0.4)
        with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as client:
            client.sendall(patch_bytes(contact))
            until(lambda: simulator.rows(contact, Kind.FAULT))
            simulator.admin("/close-listener", {"for_s": 0.2})
            refused = talk(simulator.port, patch_bytes(contact))

            assert refused.end == "refused"
            assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")


class TestTurns:
    def test_go_round_for_each_record(self) -> None:
        """Nobody's request moves another's turn, so two runs are alike."""
        turned = TurnedFaults([Fault.DRIP, ScriptedFault.INDEX_LAG, Fault.GARBLED])

        dealt = [turned.deal(name, nth) for name in "ab" for nth in (1, 2, 3)]

        assert [rule and rule.fault for rule in dealt] == [
            Fault.DRIP,
            Fault.GARBLED,
            Fault.DRIP,
        ] * 2
        searched = turned.deal_search(5)
        assert searched is not None
        assert searched.fault is ScriptedFault.INDEX_LAG

    def test_of_no_such_fault_deal_nothing(self) -> None:
        """Faults of searches never strike a write, and the other way round."""
        assert TurnedFaults([ScriptedFault.INDEX_LAG]).deal("a", 1) is None
        assert TurnedFaults([Fault.DRIP]).deal_search(1) is None


class TestSeed:
    def test_deals_every_fault_of_a_request(self) -> None:
        """No fault is out of a seed's reach but the one that strikes the port."""
        seeded = SeededFaults(seed=1, rate=1.0)

        dealt = {rule.fault for n in range(2000) if (rule := seeded.deal(str(n), 1))}

        assert dealt == set(SEEDED_FAULTS) == set(Fault) - {Fault.REFUSE}

    @pytest.mark.parametrize(("rate", "low", "high"), [(0, 0, 0), (0.3, 250, 350), (1, 1000, 1000)])
    def test_deals_at_its_rate(self, rate: float, low: int, high: int) -> None:
        """The rate is a share of requests."""
        seeded = SeededFaults(seed=7, rate=rate)

        assert low <= sum(seeded.deal(str(n), 1) is not None for n in range(1000)) <= high

    def test_means_another_deal_when_it_is_another(self) -> None:
        """Seed, contact and count all enter."""
        deals = {
            tuple(SeededFaults(seed=seed, rate=1.0).deal(contact, nth) for nth in range(1, 20))
            for seed in (1, 2)
            for contact in ("a", "b")
        }

        assert len(deals) == 4

    def test_deals_to_creates_by_what_a_repeat_shares(self, tmp_path: Path) -> None:
        """A create has no record yet: its key, or its command, says who it is."""
        seed = ("--seed", "1", "--fault-rate", "0.5", "--seed-faults", "rate_limit_429")
        told = []
        for run in (1, 2):
            path = tmp_path / f"ledger-{run}"
            with simulator_at(path, "--pack", "stripe", *seed) as simulator:
                turns = [f"key-{number}" for number in range(20)]
                random.Random(run).shuffle(turns)
                for key in turns:
                    headers = {
                        "Idempotency-Key": key,
                        "Content-Type": "application/x-www-form-urlencoded",
                    }
                    simulator.talk(request_bytes("POST", "/v1/customers", b"", headers=headers))
                told.append({row.key for row in simulator.ledger.of(Kind.FAULT)})

        assert told[0] == told[1]
        assert 3 < len(told[0]) < 17

    def test_deals_the_same_whatever_the_order(self, tmp_path: Path) -> None:
        """Two runs with the requests shuffled strike the same requests with the same faults."""
        contacts = [f"s{n}" for n in range(30)]
        quick = "rate_limit_429,reject_400,reset_after_commit,cut_body,garbled,reset_before_read"
        seed = ("--seed", "42", "--fault-rate", "0.5", "--seed-faults", quick)
        told = []
        for run in (1, 2):
            with simulator_at(tmp_path / f"ledger-{run}", *seed) as simulator:
                for contact in contacts:
                    simulator.admin("/contacts", {"id": contact})
                turns = contacts * 2
                random.Random(run).shuffle(turns)
                for contact in turns:
                    simulator.patch(contact)
                told.append(
                    {
                        contact: [row.fault for row in simulator.rows(contact, Kind.FAULT)]
                        for contact in contacts
                    }
                )

        assert told[0] == told[1]
        assert len({fault for faults in told[0].values() for fault in faults}) > 3
