"""What is private goes, stays apart, stays equal; what a verdict needs stays as it was."""

import json

import pytest

from gpudoctor.collect.capture import Capture, Probe, Snapshot
from gpudoctor.collect.probes import by_id
from gpudoctor.collect.redact import redact

U1, U2 = "8932f937-d72c-4106-c12f-20bd9faed9f6", "0e3fd1d4-2b5f-4c50-9a86-5a0d4f3c5e11"


def text(*outputs, host=None, hosts=(), users=()):
    """The outputs (text, or an object for JSON) after redaction, one probe each."""
    raw = [json.dumps(o) + "\n" if isinstance(o, dict) else o for o in outputs]
    captures = tuple(
        Capture(probe=Probe(id=f"p{n}", argv=(), kind=None, shown="p"), status="ok", rc=0, out=r.encode()) for n, r in enumerate(raw)
    )
    got = [c.out.decode() for c in redact(Snapshot(captures=captures, host=host), hosts, users).captures]
    return got[0] if len(got) == 1 else got


# --- what goes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"<uuid>GPU-{U1}</uuid>", "<uuid>GPU-00000000-0000-0000-0000-000000000001</uuid>"),
        (f"GPU 0: NVIDIA H200 (UUID: GPU-{U1})", "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000001)"),
        (f"root=UUID={U1} ro iommu=pt", "root=UUID=00000000-0000-0000-0000-000000000001 ro iommu=pt"),
        ("<serial>1650522011234</serial>", "<serial>0000000000001</serial>"),
        ("<chassis_serial_number>1821325190011</chassis_serial_number>", "<chassis_serial_number>0000000000001</chassis_serial_number>"),
        ("Serial Number                         : 1650522011234", "Serial Number                         : 0000000000001"),
        ("\t\t[SN] Serial number: MT2224X01234", "\t\t[SN] Serial number: 0000000000001"),
        ("Device Serial Number 48-b0-2d-ff-ff-12-34-56", "Device Serial Number 02-00-00-00-00-01"),
        ("link/ether 3c:ec:ef:12:34:56 brd", "link/ether 02:00:00:00:00:01 brd"),
        ("enx3cecef123456: link up", "enx020000000001: link up"),
        ("node_guid 506b:4b03:00c3:d4e6", "node_guid 0000:0000:0000:0001"),
        ("Node GUID: 0x506b4b0300c3d4e6", "Node GUID: 0x0000000000000001"),
        ("NET/Socket : Using [0]eth0:10.1.2.3<0>", "NET/Socket : Using [0]eth0:192.0.2.1<0>"),
        ("peer 10.1.2.3:29500, done", "peer 192.0.2.1:29500, done"),
        ("inet6 fe80::3eec:efff:fe12:3456/64", "inet6 2001:db8::1/64"),
        ("2a01:4f8:0:1:2:3:4:5.", "2001:db8::1."),
        ("open /home/alice/data", "open /home/user1/data"),
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=secretmodel, GPU has fallen", "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=process-1, GPU has fallen"),
        ("NVRM: Xid (PCI:0000:41:00): 31, pid='77', name=secretmodel, Ch 00", "NVRM: Xid (PCI:0000:41:00): 31, pid='77', name=process-1, Ch 00"),
        ("CPU: 3 PID: 77 Comm: secretmodel Not tainted", "CPU: 3 PID: 77 Comm: process-1 Not tainted"),
        ("task secretmodel:77 blocked for more than 120 seconds", "task process-1:77 blocked for more than 120 seconds"),
        ("<process_name>/opt/acme/secretmodel --key 1</process_name>", "<process_name>process-1</process_name>"),
        ("<process_name>/home/alice/bin/python3 train.py</process_name>", "<process_name>python3</process_name>"),
        ("WANDB_API_KEY=abc123 run", "WANDB_API_KEY=redacted run"),
        ("https://bob:hunter2@mirror/x", "https://redacted@mirror/x"),
        ("http://bob:hun/ter@2@proxy:3128 x", "http://redacted@proxy:3128 x"),
        ("redis://:hunter2@cache:6379/0", "redis://redacted@cache:6379/0"),
        ("run --pass hunter2 --pw=hunter3", "run --pass redacted --pw=redacted"),
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer redacted"),
        ("-----BEGIN RSA PRIVATE KEY-----MIIEabc/d=-----END", "-----BEGIN RSA PRIVATE KEY-----redacted-----END"),
        (f"https://ghp_{36 * 'a'}@mirror/x", "https://redacted@mirror/x"),
        (f"hf_{34 * 'a'} AKIA{16 * 'A'} glpat-{20 * 'b'} sk-proj-{30 * 'c'}", "redacted redacted redacted redacted"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2ln,", "redacted,"),
        (
            "NVRM: Xid (PCI:0000:41:00): 13, pid='<unknown>', name=secret model --x, Graphics",
            "NVRM: Xid (PCI:0000:41:00): 13, pid='<unknown>', name=process-1, Graphics",
        ),
        ("machine-id 0123456789abcdef0123456789abcdef", "machine-id 00000000000000000000000000000001"),
        ("mail to a.person@corp.example.org", "mail to mail1@example.com"),
    ],
)  # fmt: skip
def test_goes(before, after):
    assert text(before) == after


# --- what stays


@pytest.mark.parametrize(
    "kept",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue",
        "Driver Version 580.159.04, CUDA 13.0, NCCL 2.28.9+cuda13.0",
        "<vbios_version>96.00.CF.00.01</vbios_version> <vbios_version>96.00.89.00.01</vbios_version>",
        "Image Version G520.0200.00.05",
        "cuDNN version 9.1.0.70 and libcudnn.so.9.1.0.70, nvidia-cublas-cu12==12.1.3.1",
        "0000:00:06.0 3D controller: NVIDIA Corporation Device 2335 [10de:2335] (rev a1)",
        "00000000:41:00.0 PCI:0000:41:00 domain:bus:device.function",
        "bound to 127.0.0.1, ::1, 0.0.0.0 and [::]:5000, mask 255.255.255.0",
        "clusterUuid 00000000-0000-0000-0000-000000000000",
        "<serial>N/A</serial><serial>0</serial><host_id>N/A</host_id>",
        "at 20:08:54 on 2026-11-29, 0-15,32-47",
        "GPU0\t X \tNV18\tSYS\t0-31\t0\t\tN/A",
        "GPU 0: NVIDIA H200 and GPU-1, GPU-12345",
        "Serial Attached SCSI controller: Broadcom; Serial: 8250/16550 driver, 32 ports",
        "Memory at 4000000000 (64-bit, prefetchable) [size=512K] ffffffff:ffffffff",
        "std::vector<int>::at",
        "tcp://host:29500/path ib://mlx5_0:1 sk-1 hf_transfer eyJ. --passthrough on, task-bypass",
        "NVRM: Xid (PCI:0000:41:00): 13, pid=5, name=python3, Graphics",
        "<process_name>/usr/lib/xorg/Xorg</process_name>".replace("/usr/lib/xorg/", ""),
        "~/.nccl.conf /home/ /dev/shm NCCL_IB_PKEY=0",
        "ff:ff:ff:ff:ff:ff 00:00:00:00:00:00",
        "<fabric><state>Completed</state><cliqueId>32766</cliqueId></fabric>",
    ],
)  # fmt: skip
def test_stays(kept):
    assert text(kept) == kept


def test_bytes_that_are_no_text_stay():
    captures = (Capture(probe=by_id("lspci"), status="ok", out=bytes(range(128, 256)) + b"\xff\xfe 10.1.2.3"),)
    assert redact(Snapshot(captures=captures)).captures[0].out == bytes(range(128, 256)) + b"\xff\xfe 192.0.2.1"


# --- one mapping


def test_equal_stays_equal_and_different_different_across_outputs():
    first, second = text(f"GPU-{U1} GPU-{U2.upper()} 10.0.0.9", f"GPU-{U2} GPU-{U1} 10.0.0.8 10.0.0.9")
    one, two = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
    assert first == f"{one} {two} 192.0.2.1"
    assert second == f"{two} {one} 192.0.2.2 192.0.2.1"


def test_the_beginning_of_a_uuid_means_the_same_gpu():
    assert text(f"GPU-{U1} CUDA_VISIBLE_DEVICES=GPU-8932f937") == (
        "GPU-00000000-0000-0000-0000-000000000001 CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000001"
    )


def test_a_labelled_serial_also_goes_where_it_stands_bare():
    assert text("NVRM: board 1650522011234 lost", "<serial>1650522011234</serial>")[0] == "NVRM: board 0000000000001 lost"


def test_the_longest_first():
    got = text("<serial>MT16505</serial><serial>MT16505-22</serial>", "MT16505-22 MT16505 XMT16505")[1]
    assert got == "0000000000002 0000000000001 XMT16505"


def test_a_short_serial_goes_only_where_it_is_labelled():
    """As a bare number it may be anything, a link speed even."""
    assert text("<serial>16505</serial>", "16505 MB/s") == ["<serial>0000000000001</serial>", "16505 MB/s"]


def test_numbers_pass_over_stand_ins_that_are_there_already():
    assert text("10.0.0.1 192.0.2.1 192.0.2.2") == "192.0.2.3 192.0.2.1 192.0.2.2"


def test_twice_is_once():
    before = f"node07 kernel GPU-{U1} 10.0.0.1 /home/alice fe80::9 3c:ec:ef:12:34:56 a@b.org serial: 1650522011234"
    captures = (Capture(probe=by_id("dmesg"), status="ok", out=before.encode()),)
    once = redact(Snapshot(captures=captures, host="node07"))
    assert once.captures[0].out != before.encode()
    assert redact(once) == once


# --- hosts and users


def test_the_host_goes_with_and_without_its_domain():
    got = text("node07 up; node07.cluster.corp up; node070 and xnode07 are others", host="node07")
    label = got.split()[0]
    assert label.startswith("host-") and got == f"{label} up; {label} up; node070 and xnode07 are others"


def test_host_label_is_the_same_for_one_host_and_differs_between_hosts():
    def label(host, uuid):
        captures = (Capture(probe=by_id("smi-q-x"), status="ok", out=f"<uuid>GPU-{uuid}</uuid>".encode()),)
        return redact(Snapshot(captures=captures, host=host)).host

    assert label("node07", U1) == label("node07", U1)
    assert len({label("node07", U1), label("node08", U2), label("node07", U2)}) == 3


@pytest.mark.parametrize(
    "line",
    [
        "Nov 29 20:08:54 secrethost kernel: NVRM: x",
        "2026-11-29T20:08:54.1+00:00 secrethost kernel: NVRM: x",
        "systemd[1]: Set hostname to <secrethost>.",
        "systemd[1]: Hostname set to <secrethost.corp>.",
        "root@secrethost:~# nvidia-smi",
        "[root@secrethost ~]$ nvidia-smi",
        "HOSTNAME=secrethost",
        '{"machine": {"hostname": "secrethost"}}',
    ],
)
def test_hosts_are_found_where_they_are_named(line):
    got = text(line + "\n", "then secrethost again\n")
    assert "secrethost" not in "".join(got) and "host-" in got[1]


def test_users_are_found_in_paths_and_prompts():
    got = text("/home/alice7/x alicia@box:~$ ls", "owner alice7, not alice77, and alicia")[1]
    assert got == "owner user2, not alice77, and user1"


@pytest.mark.parametrize("name", ["max", "width", "h200", "will", "gpu", "root", "vm"])
def test_a_name_that_is_also_a_word_of_the_output_changes_no_fact(name):
    outputs = (
        "<product_name>NVIDIA h200</product_name><max_link_width>16x</max_link_width>\nGPU will fall off\n",
        {"devices": {"max_width": "16", "kind": "vm", "gpu": "width"}},
    )
    got = text(*outputs, host=name, users=(name,))
    assert got == [outputs[0], json.dumps(outputs[1]) + "\n"]


def test_such_a_name_still_goes_where_it_is_surely_a_name():
    assert text("will@max:~$ and /home/will/x", host="max", users=("will",)).startswith("user1@host-")


# --- structure


def test_environment_outside_the_allow_list():
    environment = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1", "HF_HOME": "/x", "NVIDIA_API_KEY": "k", "RANK": "3", "EMPTY_ONE": ""}
    got = json.loads(text({"probe": "gpudoctor.job", "environment": environment}))["environment"]
    assert got == {**environment, "HF_HOME": "redacted", "NVIDIA_API_KEY": "redacted"}


def test_settings_by_name_and_value():
    got = json.loads(text({"settings": [{"name": "NCCL_ALGO", "value": "Ring"}, {"name": "MY_TOKEN", "value": "t"}]}))
    assert got["settings"] == [{"name": "NCCL_ALGO", "value": "Ring"}, {"name": "MY_TOKEN", "value": "redacted"}]


def test_processes_in_json():
    processes = [{"pid": 7, "name": "/opt/acme/model", "cmdline": ["python3", "/srv/x.py", "--secret"], "cpus": "0-3"}]
    got = json.loads(text({"processes": processes}))["processes"]
    assert got == [{"pid": 7, "name": "process-1", "cmdline": "python3", "cpus": "0-3"}]


def test_a_serial_that_json_gives_as_a_number():
    assert json.loads(text({"serial": 1650522011234, "count": 1650522011234})) == {"serial": "0000000000001", "count": 1650522011234}


def test_versions_in_json_are_no_addresses():
    tree = {"distributions": {"nvidia-cudnn-cu12": "9.1.0.70"}, "peer": "9.1.0.70"}
    assert json.loads(text(tree)) == {"distributions": {"nvidia-cudnn-cu12": "9.1.0.70"}, "peer": "192.0.2.1"}


def test_json_without_anything_private_keeps_its_bytes():
    raw = '{"probe":   "gpudoctor.pci", "x": [1,2.50, null]}'
    assert text(raw) == raw


def test_json_that_was_cut_is_treated_as_text():
    assert text(f'{{"probe": "gpudoctor.nvml", "uuid": "GPU-{U1}", "serial": "1650522011') == (
        '{"probe": "gpudoctor.nvml", "uuid": "GPU-00000000-0000-0000-0000-000000000001", "serial": "0000000000001'
    )


def test_deep_json_ends_nothing():
    assert text("{" + '"a":[' * 50000) == "{" + '"a":[' * 50000


def test_standard_error_too():
    captures = (Capture(probe=by_id("nvml"), status="exit", rc=1, err=b"cannot reach 10.1.2.3 for /home/alice\n"),)
    assert redact(Snapshot(captures=captures)).captures[0].err == b"cannot reach 192.0.2.1 for /home/user1\n"


def test_only_telling_lines_of_the_kernel_log_are_kept_at_their_numbers():
    from gpudoctor.collect.capture import Capture, Snapshot
    from gpudoctor.collect.probes import by_id

    log = b"Command line: secret=1\nusb 1-1: new device\nNVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.\nother\n"
    probe = by_id("dmesg")
    assert probe is not None
    kept = redact(Snapshot(captures=(Capture(probe=probe, status="ok", out=log),))).captures[0].out
    assert kept == b"\n\nNVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.\n\n"


def test_a_line_that_no_tool_prints_is_left_out_and_costs_no_minutes():
    lspci = by_id("lspci")
    assert lspci is not None
    odd = b"x" * (20 << 20) + b"\nserial: ABCDE12345\n" + b"\0" * (1 << 20)
    covered = redact(Snapshot(captures=(Capture(probe=lspci, status="ok", rc=0, out=odd, err=odd),)))
    for kept in (covered.captures[0].out, covered.captures[0].err):
        assert kept.count(b"bytes was left out") == 2 and b"ABCDE12345" not in kept and len(kept) < 1000
