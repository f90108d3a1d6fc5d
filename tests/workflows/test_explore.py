"""x"""
import time
import pytest
from oncefence.domain.limits import Limits
from tests.support.station import *
pytestmark = pytest.mark.asyncio(loop_scope="module")

async def test_ladder(store, skipper, simulator):
    """x"""
    provider = simulated_provider(simulator)
    world = await ProviderWorld.on(store, provider, limits=Limits(), view=provider.dialect.view(local_ms=500))
    t=time.time()
    async with working(make_station(world, skipper.client, new_queue())) as st:
        a = await world.accept_in(Form.LOCAL)
        simulator.script(contact=world.remote_ids["lead-1"], fault="overwritten")
        await st.announce(a)
        print(await world.settled(a), time.time()-t, st.announcer.starter.eager)
        lw = await world.lookup_work(a)
        for w in (a.work, lw):
            h = await st.workflow(w).fetch_history()
            for e in h.events:
                x = e.WhichOneof("attributes")
                extra = ""
                if x=="timer_started_event_attributes": extra = e.timer_started_event_attributes.start_to_fire_timeout
                if x=="marker_recorded_event_attributes": extra = str(e.marker_recorded_event_attributes)
                print(e.event_id, e.event_time.ToDatetime(), x, extra)
        print(await world.of_command("lookups", a))
    print("end", time.time()-t)
