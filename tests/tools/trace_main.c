/* trace_main [--threads N] WORD...: a rank, or N of them as threads, that do what the words say,
 * one after the other, so that a test can look at ranks that are where it wants them: reduce:N N
 * all_reduces of 2 elements messages       sends to the next rank and receives from the one before,
 * in a group, then by itself say:FIFO       writes "RANK PID" wait:RANK:FIFO this rank reads until
 * the fifo's other end is closed dump:FILE      tutti_trace_dump fail:RANK      this rank aborts;
 * the others wait for it in a barrier, until they know
 * agree, shrink, grow    that call
 */
#include <tutti/tutti.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **words;

static void die(const char *what)
{
	fprintf(stderr, "trace_main: %s: %s\n", what, tutti_comm_error(NULL));
	_exit(1);
}

static void must(tutti_status status, const char *what)
{
	if (status != TUTTI_OK)
		die(what);
}

static void reduce(tutti_comm *comm, int n)
{
	float x[2] = {1, 2};
	for (int i = 0; i < n; i++)
		must(tutti_all_reduce(x, x, 2, TUTTI_F32, TUTTI_MAX, comm, NULL), "all_reduce");
}

static void pass_on(tutti_comm *comm, const tutti_call *call)
{
	int rank = tutti_rank(comm), size = tutti_size(comm);
	static _Thread_local int out, in;
	must(tutti_recv(&in, 1, TUTTI_I32, (rank + size - 1) % size, comm, call), "recv");
	must(tutti_send(&out, 1, TUTTI_I32, (rank + 1) % size, comm, call), "send");
}

static void messages(tutti_comm *comm)
{
	tutti_work *works[2];
	must(tutti_group_begin(), "group");
	pass_on(comm, NULL);
	must(tutti_group_end(NULL), "group");
	tutti_call call = {.work = &works[0]};
	static _Thread_local int out, in;
	int rank = tutti_rank(comm), size = tutti_size(comm);
	must(tutti_recv(&in, 1, TUTTI_I32, TUTTI_ANY, comm, &call), "recv");
	must(tutti_send(&out, 1, TUTTI_I32, (rank + 1) % size, comm, NULL), "send");
	must(tutti_work_wait(&works[0], 0), "recv");
}

static void say(tutti_comm *comm, const char *fifo)
{
	char line[64];
	int fd = open(fifo, O_WRONLY);
	int n = snprintf(line, sizeof line, "%d %d\n", tutti_rank(comm), (int)getpid());
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		die(fifo);
	close(fd);
}

static void wait_for(tutti_comm *comm, const char *word)
{
	const char *fifo = strchr(word, ':');
	char byte;
	if (!fifo || atoi(word) != tutti_rank(comm))
		return;
	int fd = open(fifo + 1, O_RDONLY);
	if (fd < 0)
		die(fifo);
	while (read(fd, &byte, 1) > 0)
		;
	close(fd);
}

static void come_to_fail(tutti_comm *comm, int rank)
{
	if (tutti_rank(comm) == rank)
		tutti_comm_abort(comm);
	if (tutti_barrier(comm, NULL) == TUTTI_OK)
		die("a barrier of a failed communicator");
}

/* Calls of the living ranks, for which this one waits. */
static void agree(tutti_comm *comm)
{
	int flag = 1;
	must(tutti_comm_agree(comm, &flag), "tutti_comm_agree");
}

static void shrink(tutti_comm *comm)
{
	tutti_comm *survivors;
	must(tutti_comm_shrink(comm, &survivors), "tutti_comm_shrink");
	tutti_comm_destroy(survivors);
}

static void grow(tutti_comm *comm)
{
	tutti_comm *grown;
	must(tutti_comm_grow(comm, tutti_size(comm) + 1, NULL, &grown), "tutti_comm_grow");
	tutti_comm_destroy(grown);
}

static void run(tutti_comm *comm, char *word)
{
	char *value = strchr(word, ':');
	size_t n = value ? (size_t)(value++ - word) : strlen(word);
	if (strncmp(word, "reduce", n) == 0)
		reduce(comm, atoi(value));
	else if (strncmp(word, "messages", n) == 0)
		messages(comm);
	else if (strncmp(word, "say", n) == 0)
		say(comm, value);
	else if (strncmp(word, "wait", n) == 0)
		wait_for(comm, value);
	else if (strncmp(word, "dump", n) == 0)
		must(tutti_trace_dump(value), "tutti_trace_dump");
	else if (strncmp(word, "fail", n) == 0)
		come_to_fail(comm, atoi(value));
	else if (strncmp(word, "agree", n) == 0)
		agree(comm);
	else if (strncmp(word, "shrink", n) == 0)
		shrink(comm);
	else if (strncmp(word, "grow", n) == 0)
		grow(comm);
	else
		die(word);
}

static void *be_rank(void *arg)
{
	for (char **word = words; *word; word++)
		run(arg, *word);
	tutti_comm_destroy(arg);
	return NULL;
}

int main(int argc, char **argv)
{
	tutti_comm *comms[16];
	pthread_t threads[16];
	int n = argc > 2 && strcmp(argv[1], "--threads") == 0 ? atoi(argv[2]) : 0;

	words = argv + (n ? 3 : 1);
	if (n == 0) {
		must(tutti_init(&comms[0], NULL), "tutti_init");
		be_rank(comms[0]);
		return 0;
	}
	must(tutti_init_all(comms, n > 16 ? 16 : n, NULL), "tutti_init_all");
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, be_rank, comms[i]) != 0)
			die("pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
