/* A port where the ranks of a new job meet, and a secret by which they know each other: no other
 * job of this machine has them. */
#ifndef SPAWN_RANK_FRESH_H
#define SPAWN_RANK_FRESH_H

#define FRESH_FIRST_PORT   29500 /* torchrun's */
#define FRESH_PORTS        1000  /* tried upward from the first */
#define FRESH_SECRET_BYTES 65    /* 256 random bits in hexadecimal */

/* A descriptor that keeps the port from other jobs until it is closed; -1 with errno. */
int fresh_port_at(int port);
/* The same for the first free port of FRESH_PORTS from first on: *port is that one or, with -1, the
 * last that was tried. */
int fresh_port_from(int first, int *port);
/* 0, or -1 with errno. */
int fresh_secret(char secret[FRESH_SECRET_BYTES]);

#endif
