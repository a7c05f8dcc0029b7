"""Port ranges: checked before anything starts, never shared by two networks."""

import socket

import pytest

from localnet.ports import PortError, claim, ports_of, taken_ports


def test_ports_of_a_node_follow_the_documented_plan() -> None:
    ports = ports_of(26600, 2)
    assert (ports.p2p, ports.rpc, ports.services, ports.metrics) == (26620, 26621, 26622, 26623)


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with claim(None, 2) as base:
        pass
    with socket.create_server(("127.0.0.1", base + 12)):
        assert taken_ports(base, 2) == [base + 12]
        with pytest.raises(PortError, match=rf"port {base + 12} is in use.*--base-port auto"), claim(base, 2):
            pytest.fail("the range was given out")


def test_two_networks_that_start_in_the_same_moment_get_different_ranges() -> None:
    with claim(None, 4) as first, claim(None, 4) as second:
        assert abs(first - second) >= 40


@pytest.mark.parametrize("shift", [-30, 0, 30])
def test_ranges_that_overlap_exclude_each_other(shift: int) -> None:
    with claim(None, 4) as held, pytest.raises(PortError, match="another local network"), claim(held + shift, 4):
        pytest.fail("an overlapping range was given out")


def test_a_range_is_free_again_after_its_network_has_ended() -> None:
    with claim(None, 4) as held:
        pass
    with claim(held, 4) as again:
        assert again == held


@pytest.mark.parametrize("base_port", [0, -5, 80, 65530])
def test_a_range_outside_the_usable_ports_is_refused(base_port: int) -> None:
    with pytest.raises(PortError, match="1024 to 65535"), claim(base_port, 4):
        pytest.fail("the range was given out")
