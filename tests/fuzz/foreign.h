/* A transport whose peers are the harness: what is received is what it says, and it sees what is
 * sent. */
#ifndef TESTS_FUZZ_FOREIGN_H
#define TESTS_FUZZ_FOREIGN_H

#include <tutti/transport.h>

#include <stdbool.h>

#define FOREIGN_CONNS 8

struct foreign_conn {
	struct tutti_conn base;
	struct tutti_done sends, recvs;
	bool is_open, is_broken;
};

struct foreign {
	struct tutti_endpoint base;
	struct foreign_conn conns[FOREIGN_CONNS];
	int count;
	bool holds; /* sends do not end */
	/* The next bytes of conn; false: nothing now. Asked for every posted receive. */
	bool (*says)(void *arg, struct foreign_conn *conn, void *bytes, size_t n);
	void (*hears)(void *arg, struct foreign_conn *conn, const void *bytes,
		      size_t n); /* or NULL */
	void *arg;
};

void foreign_open(struct foreign *foreign);
/* Every io ends badly from now on. */
void foreign_break(struct foreign *foreign, struct foreign_conn *conn);

#endif
