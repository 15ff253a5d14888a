/* A fork leaves a flag in the child, set before fork returns there, and none of our sockets. */
#include "core/forks.h"

#include "core/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define OWNED_MOST  65536 /* descriptors with higher numbers stay open in a child */
#define OWNED_WORDS (OWNED_MOST / 64)

bool forks_is_orphan;

static atomic_int communicators;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
static _Atomic uint64_t owned[OWNED_WORDS];

static void forks_close_all(size_t word)
{
	uint64_t bits = atomic_exchange(&owned[word], 0);

	for (; bits; bits &= bits - 1)
		close((int)(word * 64) + __builtin_ctzll(bits));
}

/* Nothing but the calling thread is here, and locks of the others may be held for ever. Closing
 * says nothing to the other end as long as the parent has the socket; shutting down would. */
static void forks_in_child(void)
{
	forks_is_orphan |= atomic_load(&communicators) > 0;
	for (size_t word = 0; word < OWNED_WORDS; word++)
		if (atomic_load_explicit(&owned[word], memory_order_relaxed))
			forks_close_all(word);
}

/* Without memory for it a child is not told apart: nothing that works is refused for that. */
static void forks_ask_to_be_told(void)
{
	int error = pthread_atfork(NULL, NULL, forks_in_child);

	(void)error;
}

void forks_watch(void)
{
	pthread_once(&registered, forks_ask_to_be_told);
	atomic_fetch_add(&communicators, 1);
}

void forks_forget(void)
{
	atomic_fetch_sub(&communicators, 1);
}

int forks_communicators(void)
{
	return atomic_load(&communicators);
}

void forks_own(int fd)
{
	pthread_once(&registered, forks_ask_to_be_told);
	if (fd >= 0 && fd < OWNED_MOST)
		atomic_fetch_or(&owned[fd / 64], UINT64_C(1) << fd % 64);
}

void forks_disown(int fd)
{
	if (fd >= 0 && fd < OWNED_MOST)
		atomic_fetch_and(&owned[fd / 64], ~(UINT64_C(1) << fd % 64));
}

tutti_status forks_refuse(const char *what)
{
	return fail(TUTTI_ERR_INVALID,
		    "%s: this process was forked from one that has communicators, which stay with "
		    "that one: fork before tutti_init, or exec in the child",
		    what);
}
