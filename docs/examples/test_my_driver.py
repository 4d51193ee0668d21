from scapy.layers.l2 import ARP, Ether
from scapy.sendrecv import srp1


def test_full_rings_are_left_at_once(run_scenario):
    run_scenario("ring-full").check("ring-full-exit")


def test_the_stack_answers(wire):
    who_has = Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="192.0.2.2")
    assert srp1(who_has, iface=wire, timeout=20, verbose=False)
