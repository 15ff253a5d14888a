/* A port where the ranks of a new job meet, and a secret by which they know each other: no other
 * job of this machine has them. */
#ifndef CORE_RANK_FRESH_H
#define CORE_RANK_FRESH_H

#define FRESH_SECRET_BYTES 65    /* 256 random bits in hexadecimal */

/* A TCP port that is held, so that only this job's rank 0 can listen on it. */
struct fresh_port {
	int number;
	int fd, lock_fd;         /* -1: not held */
};

#define FRESH_PORT_NONE {.fd = -1, .lock_fd = -1}

/* Holds the port `number`; 0: one that the system chooses. Returns 0, or -1 with errno; sets
 * port->number in both cases. */
int fresh_port_keep(struct fresh_port *port, int number);
void fresh_port_free(struct fresh_port *port);
/* 0, or -1 with errno. */
int fresh_secret(char secret[FRESH_SECRET_BYTES]);

#endif
