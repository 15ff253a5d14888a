/* A port where the ranks of a new job meet, and a secret by which they know each other: no other
 * job of this machine has them. */
#ifndef SPAWN_RANK_FRESH_H
#define SPAWN_RANK_FRESH_H

#define FRESH_SECRET_BYTES 65    /* 256 random bits in hexadecimal */

/* A TCP port that is kept from other jobs and programs, but not from this job's rank 0. */
struct fresh_port {
	int number;
	int fd, lock_fd;         /* -1: not kept */
};

#define FRESH_PORT_NONE {.fd = -1, .lock_fd = -1}

/* Keeps the port of that number; 0: any that is free, which the system chooses. 0, or -1 with
 * errno; port->number is the number in both cases. */
int fresh_port_keep(struct fresh_port *port, int number);
void fresh_port_free(struct fresh_port *port);
/* 0, or -1 with errno. */
int fresh_secret(char secret[FRESH_SECRET_BYTES]);

#endif
