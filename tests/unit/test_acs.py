"""acs on built hosts."""

from __future__ import annotations

from typing import Any

from gpudoctor.checkers.acs import AcsRedirect
from gpudoctor.facts.bandwidth import PeerCopies, PeerCopy
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CannotTell
from tests.builders import ACS_OFF, ACS_REDIRECT, Host, host
from tests.support import HERE, check, findings

SXM: dict[str, Any] = {"name": "NVIDIA A100-SXM4-40GB", "device_id": "10de:20b0"}
GEFORCE: dict[str, Any] = {"name": "NVIDIA GeForce RTX 4090", "device_id": "10de:2684"}
L40S: dict[str, Any] = {"name": "NVIDIA L40S", "device_id": "10de:26b9"}


def said(made: Host) -> dict[str, str]:
    return {f.subject: f.severity for f in findings(AcsRedirect(), *made.facts()).values()}


def redirected(gpus: int = 2, switches: int = 1, **part: Any) -> Host:
    made = host(gpus, switches, **part)
    for gpu in made.gpus:
        made.set(made.port(gpu), acs=ACS_REDIRECT)
    return made


def test_switch_ports_between_peers() -> None:
    assert said(redirected(**L40S)) == {"pci:0000:60:00.0": "warning", "pci:0000:60:01.0": "warning"}


def copied(made: Host, on: float) -> Host:
    """As p2pBandwidthLatencyTest measures it; 20 GB/s through host memory."""
    copy = PeerCopy(a=0, b=1, a_bdf=made.bdf(0), b_bdf=made.bdf(1), access=True, on_gbs=on, off_gbs=20.0, origin=HERE)
    return made.add(PeerCopies((copy,)))


def test_a_measured_loss_makes_it_an_error() -> None:
    for on, severity in ((9.0, "error"), (16.0, "warning"), (24.0, "warning")):
        assert set(said(copied(redirected(**L40S), on)).values()) == {severity}
    assert set(said(copied(redirected(**L40S), 5.0)).values()) == {"error"}
    assert set(said(copied(redirected(**SXM).nvlink(), 5.0)).values()) == {"note"}
    for part, severity in ((SXM, "note"), (L40S, "error"), (GEFORCE, "error")):  # nobody gave the topology: a board has NVLink
        made = copied(redirected(**part), 5.0)
        made.pairs = []
        assert set(said(made).values()) == {severity}
    assert check(AcsRedirect(), *copied(host(2, 1, **L40S), 5.0).facts()) == []
    (first, *_) = findings(AcsRedirect(), *copied(redirected(**L40S), 5.0).facts()).values()
    assert "5 GB/s from GPU to GPU and 20 GB/s through host memory" in (first.cost or "") and len(first.evidence) == 2


def test_off_is_in_order() -> None:
    assert check(AcsRedirect(), *host(4, 2).facts()) == []


def test_source_validation_alone_redirects_nothing() -> None:
    made = host(2, 1)
    for gpu in made.gpus:
        made.set(made.port(gpu), acs={**ACS_OFF, "SrcValid": True})
    assert check(AcsRedirect(), *made.facts()) == []


def test_each_redirect_bit_counts() -> None:
    for bit in ("ReqRedir", "CmpltRedir"):
        made = host(2, 1, **L40S)
        assert said(made.set(made.port(0), acs={**ACS_OFF, bit: True})) == {"pci:0000:60:00.0": "warning"}


def test_nvlink_pairs_and_parts_without_peer_access_make_a_note() -> None:
    assert set(said(redirected(**SXM).nvlink()).values()) == {"note"}
    assert set(said(redirected(**GEFORCE)).values()) == {"note"}
    assert set(said(redirected(**L40S).p2p("CNS")).values()) == {"note"}
    # The driver's OK beats what the table of parts says.
    assert set(said(redirected(**GEFORCE).p2p("OK")).values()) == {"warning"}


def test_unknown_use_is_a_note_that_says_so() -> None:
    made = redirected(name="NVIDIA Something New", device_id="10de:ffff")
    found = findings(AcsRedirect(), *made.facts())
    assert {f.severity for f in found.values()} == {"note"}
    assert all("not in the input" in f.message for f in found.values())


def test_root_ports_change_nothing() -> None:
    made = host(2, **L40S)
    assert said(made.every_bridge(acs=ACS_REDIRECT)) == {}
    one_switch = host(2, 1, **L40S)
    assert said(one_switch.set(one_switch.root(0), acs=ACS_REDIRECT)) == {}
    # sysfs gives no port type: a bridge on the root bus is a root port.
    assert said(one_switch.set(one_switch.root(0), port_type=None)) == {}


def test_two_functions_below_one_root_port_do_not_make_it_a_switch() -> None:
    made = host(2, **L40S)
    made.set(made.bdf(1), parent=made.port(0)).set(made.port(0), acs=ACS_REDIRECT)
    assert said(made) == {}
    # A bridge of unknown kind whose own parent is not in the input may be a switch port.
    made.set(made.port(0), port_type=None, parent_known=None)
    assert said(made) == {f"pci:{made.port(0)}": "warning"}


def test_boards_that_join_all_links_do_not_use_pcie() -> None:
    made = redirected(**SXM)
    made.pairs = []
    found = findings(AcsRedirect(), *made.facts())
    assert found
    assert all(f.severity == "note" and "do not use" in f.message for f in found.values())


def test_ports_off_every_path_do_not_matter() -> None:
    made = host(2, 1, **L40S)
    made.devices["0000:60:05.0"] = PciDevice(
        bdf="0000:60:05.0", class_code="060400", parent=made.uplink(0), port_type="downstream", acs=ACS_REDIRECT, origin=HERE
    )
    made.devices["0000:99:00.0"] = PciDevice(bdf="0000:99:00.0", class_code="068000", parent="0000:60:05.0", origin=HERE)
    assert said(made) == {}


def test_a_lone_gpu_with_an_rdma_nic() -> None:
    made = host(1, 1, **SXM).nic(0)
    made.set("0000:60:1f.0", acs=ACS_REDIRECT)
    assert said(made) == {"pci:0000:60:1f.0": "warning"}
    (found,) = findings(AcsRedirect(), *made.facts()).values()
    assert "NIC 0000:c1:00.0" in found.message
    plain = host(1, 1, **SXM).nic(0, driver="igb").set("0000:c1:00.0", class_code="020000").set("0000:60:1f.0", acs=ACS_REDIRECT)
    assert said(plain) == {}


def test_the_remedies_come_in_the_safe_order_and_name_the_ports() -> None:
    found = findings(AcsRedirect(), *redirected(**L40S).facts())["acs", "pci:0000:60:00.0"]
    commands = [s.command for s in found.remediation]
    assert commands[0] is None
    assert commands[1] == "pci=disable_acs_redir=0000:60:00.0;0000:60:01.0"
    assert "setpci -v -s 0000:60:01.0 ECAP_ACS+0x6.w=0000" in (commands[2] or "")
    assert "virtual machines" in found.remediation[0].step


def test_a_host_with_guests_is_never_told_to_switch_it_off() -> None:
    made = redirected(**L40S)
    made.devices["0000:f0:00.0"] = PciDevice(bdf="0000:f0:00.0", class_code="030200", driver="vfio-pci", origin=HERE)
    found = findings(AcsRedirect(), *made.facts())
    assert found
    for f in found.values():
        assert not any("setpci" in (s.command or "") or "disable_acs" in (s.command or "") for s in f.remediation)
        assert any("Leave ACS" in s.step for s in f.remediation)


def test_unread_ports_cannot_be_told() -> None:
    made = host(2, 1, **L40S)
    made.set(made.port(0), acs=None, access_denied=True).set(made.port(1), acs=None, access_denied=True)
    (said_,) = check(AcsRedirect(), *made.facts())
    assert isinstance(said_, CannotTell)
    assert "sudo lspci -vv -D > lspci.txt" in said_.reason
    assert "0000:60:00.0" in said_.reason
    assert "without root" in said_.reason
    made.set(made.port(0), access_denied=None).set(made.port(1), access_denied=None)
    (said_,) = check(AcsRedirect(), *made.facts())
    assert isinstance(said_, CannotTell)
    # GPUs on root ports share no switch: nothing to read, whatever is unread.
    assert check(AcsRedirect(), *host(2).every_bridge(acs=None).facts()) == []


def test_bare_lines_are_possible() -> None:
    lines = tuple(PciDevice(acs=bits, origin=HERE) for bits in (ACS_REDIRECT, ACS_OFF))
    (found,) = findings(AcsRedirect(), PciTree(lines)).values()
    assert (found.subject, found.severity, found.confidence) == ("host", "note", "possible")
    peers = Pairs((Pair(a=0, b=1, path="PIX", p2p_read="OK", origin=HERE),))
    (found,) = findings(AcsRedirect(), PciTree(lines), peers).values()
    assert (found.severity, found.confidence) == ("warning", "possible")
    assert findings(AcsRedirect(), PciTree(lines[1:])) == {}


def test_a_port_out_of_its_tree_is_possible() -> None:
    """An excerpt of one switch port: whether GPUs lie around it, nothing says."""
    port = PciDevice(bdf="0000:41:08.0", class_code="060400", port_type="downstream", acs=ACS_REDIRECT)
    (finding,) = findings(AcsRedirect(), PciTree((port,))).values()
    assert (finding.severity, finding.confidence, finding.subject) == ("note", "possible", "pci:0000:41:08.0")
    for healthy in (
        PciDevice(bdf="0000:41:08.0", class_code="060400", acs=ACS_OFF),
        PciDevice(bdf="0000:41:00.0", class_code="060400", port_type="root", acs=ACS_REDIRECT),
        PciDevice(bdf="0000:00:01.1", acs=ACS_REDIRECT),  # ports of bus 0 are root ports
        PciDevice(bdf="0000:41:00.0", class_code="020000", port_type="endpoint", acs=ACS_REDIRECT),
    ):
        assert findings(AcsRedirect(), PciTree((healthy,))) == {}
    assert findings(AcsRedirect(), PciTree((port,), complete=True)) == {}


def test_a_virtual_machines_bridges_are_not_judged() -> None:
    assert check(AcsRedirect(), *redirected(**L40S).platform(vm=True).facts()) == []
