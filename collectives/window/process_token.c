/* A random word that tells this process from all others. */
#include "collectives/window/allocations.h"

#include "core/auth.h"

#include <pthread.h>
#include <unistd.h>

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
		do
			auth_random(&token, sizeof token);
		while (!token);
	}
	result = token;
	pthread_mutex_unlock(&token_lock);
	return result;
}

uint64_t process_token_at(void)
{
	return (uintptr_t)&token;
}
