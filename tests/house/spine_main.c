/* spine_main [tcp]: two ranks, threads of this process, call tutti_all_reduce a few times, through
 * the window or by tcp. Of the last call of rank 0 it prints what its thread enters and leaves of
 * the library, which is compiled with -finstrument-functions: `+ address`, `- address`, `post`
 * where it hands a message to the transport, and `wire` where it copies into memory that is shared
 * or hands bytes to a socket. spine.py reads it. */
#include <tutti/transport.h>
#include <tutti/tutti.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CALLS       4 /* the first ones plan and connect */
#define EVENTS_MOST 100000

extern const struct tutti_transport transport_tcp; /* as transport/registry.c has it */

struct event {
	char what; /* '+', '-', 'p' for post, or 'w' for wire */
	void *function;
};

static struct event events[EVENTS_MOST];
static int event_count;
static struct {
	char *first, *end;
} shared[100]; /* the mappings that other processes could write */
static int shared_count;
static _Thread_local int is_traced;

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);
void *__real_memcpy(void *dst, const void *src, size_t bytes);
void *__wrap_memcpy(void *dst, const void *src, size_t bytes);
ssize_t __real_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

static void note(char what, void *function)
{
	if (is_traced && event_count < EVENTS_MOST)
		events[event_count++] = (struct event){what, function};
}

void __cyg_profile_func_enter(void *function, void *caller)
{
	(void)caller;
	note('+', function);
	if ((uintptr_t)function == (uintptr_t)transport_tcp.send)
		note('p', NULL);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)caller;
	note('-', function);
}

void *__wrap_memcpy(void *dst, const void *src, size_t bytes)
{
	for (int i = 0; is_traced && i < shared_count; i++)
		if ((char *)dst >= shared[i].first && (char *)dst < shared[i].end)
			note('w', NULL);
	return __real_memcpy(dst, src, bytes);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags)
{
	note('w', NULL);
	return __real_send(fd, bytes, count, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	note('w', NULL);
	return __real_sendmsg(fd, message, flags);
}

static void find_shared(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[500];
	void *first, *end;

	while (maps && fgets(line, sizeof line, maps) && shared_count < 100) {
		if (!strstr(line, " rw-s ") || sscanf(line, "%p-%p", &first, &end) != 2)
			continue;
		shared[shared_count].first = first;
		shared[shared_count++].end = end;
	}
	if (maps)
		fclose(maps);
}

static void must(tutti_status status, const char *what)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, tutti_comm_error(NULL));
	exit(1);
}

static void *rank_main(void *arg)
{
	tutti_comm *comm = arg;

	for (int call = 1; call <= CALLS; call++) {
		float in[2] = {1, 2}, out[2];
		is_traced = call == CALLS && tutti_rank(comm) == 0;
		must(tutti_all_reduce(in, out, 2, TUTTI_F32, TUTTI_SUM, comm, NULL), "all_reduce");
		is_traced = 0;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	tutti_comm *comms[2];
	pthread_t other;

	if (argc > 1 && strcmp(argv[1], "tcp") == 0) {
		setenv("TUTTI_WINDOW", "0", 1);
		setenv("TUTTI_TRANSPORTS", "tcp", 1);
	}
	must(tutti_init_all(comms, 2, NULL), "init");
	find_shared();
	if (pthread_create(&other, NULL, rank_main, comms[1]) != 0)
		return 1;
	rank_main(comms[0]);
	pthread_join(other, NULL);
	for (int i = 0; i < event_count; i++) {
		if (events[i].function)
			printf("%c %p\n", events[i].what, events[i].function);
		else
			puts(events[i].what == 'p' ? "post" : "wire");
	}
	for (int i = 0; i < 2; i++)
		tutti_comm_destroy(comms[i]);
	return 0;
}
