/* A random word that tells this process from all others. */
#include "collectives/window/allocations.h"

#include "core/clock.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

static uint64_t random_token(void)
{
	uint64_t token = 0;

	while (!token) {
		if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
			token = clock_now_ns() ^ (uint64_t)getpid() << 40;
	}
	return token;
}

static uint64_t token;

/* A forked child is another process. */
uint64_t process_token(void)
{
	static pthread_mutex_t token_lock = PTHREAD_MUTEX_INITIALIZER;
	static pid_t owner;
	uint64_t result;

	pthread_mutex_lock(&token_lock);
	if (owner != getpid()) {
		owner = getpid();
		token = random_token();
	}
	result = token;
	pthread_mutex_unlock(&token_lock);
	return result;
}

uint64_t process_token_at(void)
{
	return (uintptr_t)&token;
}
