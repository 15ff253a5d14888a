/* Hosts, as far as a network goes: a network namespace each, with one interface, the end of which
 * the test holds (a TUN device). So what travels between hosts travels through a process of the
 * test's, the wire, which drops, delays and keeps it as it likes. Namespaces have no names and
 * devices do not persist: both are gone with the processes that use them, however these end. Needs
 * root and /dev/net/tun. */
#ifndef TESTS_FAULTS_HOSTS_H
#define TESTS_FAULTS_HOSTS_H

#include "tests/faults/board.h"

#define HOSTS_MOST 4

struct hosts {
	int count, own; /* own: the namespace that this process came from         */
	int spaces[HOSTS_MOST], tuns[HOSTS_MOST];
};

/* A /dev/shm and /tmp of this process's own, empty, and, unless it keeps this machine's, a network
 * with loopback only. false: not allowed here. */
bool hosts_leave_world(bool keeps_network);
/* NULL, or the message why not. */
const char *hosts_open(struct hosts *h, int count);
void hosts_close(struct hosts *h);
/* This process is on that host from now on. */
bool hosts_enter(const struct hosts *h, int host);
/* "10.77.0.1" */
void hosts_address(int host, char *text, size_t bytes);
/* The link of a host, as `ip link set ... up` or down. */
void hosts_link(const struct hosts *h, int host, bool is_up);
/* The wire's life; never returns. wire.c */
_Noreturn void wire_run(const struct hosts *h, struct board *board, uint64_t seed);

#endif
