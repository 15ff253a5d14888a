/* grow_main kills|recover|fewer|more|secret|absent|left|lingers [rounds]: a rank of a job that new
 * ranks join. `ranks -k -r` starts those that are killed again, with TUTTI_RESTARTED. SEED decides
 * who goes when: all ranks know it, new ones are told. recover: as kills, by tutti_recover.
 * WAY: how kills and recover join, the first ranks and the new ones alike: by a config alone, with
 * nothing of a launcher in the environment: tcp, file, open (a file, no secret), url (rank 0 opens
 * it); a second word, dup, split or create_from: the first ranks go on in such a child alone.
 *
 * What it must never see: a rank that hangs (ranks has a deadline), numbers or sums that are wrong,
 * a new rank that is not told what the others know, a job that ends because a rank lacks the
 * secret, is missing or dies while it joins. */
#include "../random.h"

#include <tutti/tutti.h>

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST 64
#define COUNT      5000
#define TRIES      200

/* The same on all ranks: a new rank gets it from those who were there. */
struct state {
	int step;
	uint64_t random;
	bool goes[RANKS_MOST];  /* by rank: in this step                                  */
	int before[RANKS_MOST]; /* the process that it was then                           */
};

static tutti_comm *comm;
static struct state state;
static int id, size;         /* of the whole job, for good                             */
static int pids[RANKS_MOST]; /* by rank, of the present processes                      */
static bool is_dying, is_at_once;
static int32_t data[COUNT];

#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: rank %d of %d (pid %d), step %d: %s: ", __FILE__, __LINE__, \
			       id, size, (int)getpid(), state.step, #condition);                   \
			printf(__VA_ARGS__);                                                       \
			printf(" [%s]\n", tutti_comm_error(NULL));                                 \
			fflush(stdout);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define CHECK_OK(call) CHECK((call) == TUTTI_OK, "failed")

static int below(int n)
{
	return (int)random_below(&state.random, (uint64_t)n);
}

static int number(const char *name)
{
	const char *text = getenv(name);
	CHECK(text, "%s is not set", name);
	return atoi(text);
}

static void set_number(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	CHECK(setenv(name, text, 1) == 0, "setenv");
}

/* Any error but one of a death is wrong. */
static bool is_fine(tutti_status status)
{
	CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED ||
		      status == TUTTI_ERR_TIMEOUT,
	      "%s", tutti_status_string(status));
	return status == TUTTI_OK;
}

/* All ranks of comm, by their numbers. */
static bool work_once(void)
{
	int ranks = tutti_size(comm), own = tutti_rank(comm), all[RANKS_MOST];

	if (!is_fine(tutti_all_gather(&own, all, 1, TUTTI_I32, comm, NULL)))
		return false;
	for (int r = 0; r < ranks; r++)
		CHECK(all[r] == r, "rank %d is %d", r, all[r]);
	for (int i = 0; i < COUNT; i++)
		data[i] = (own + 1) * (i % 7 + 1);
	if (!is_fine(tutti_all_reduce(data, data, COUNT, TUTTI_I32, TUTTI_SUM, comm, NULL)))
		return false;
	for (int i = 0; i < COUNT; i++)
		CHECK(data[i] == ranks * (ranks + 1) / 2 * (i % 7 + 1), "element %d is %d", i,
		      data[i]);
	return true;
}

static void grow_to(int ranks, const tutti_config *config)
{
	tutti_comm *grown = NULL;
	int before = tutti_rank(comm);

	CHECK_OK(tutti_comm_grow(comm, ranks, config, &grown));
	CHECK(tutti_size(grown) == ranks, "%d ranks", tutti_size(grown));
	CHECK(tutti_parent_rank(grown, tutti_rank(grown)) == before, "it was %d", before);
	tutti_comm_destroy(comm);
	comm = grown;
	CHECK(work_once(), "the first call");
}

static void *die_soon(void *arg)
{
	const struct timespec *t = arg;
	nanosleep(t, NULL); /* the point of what follows at which this rank dies */
	kill(getpid(), SIGKILL);
	return NULL;
}

static void arrange_death(long after_ns)
{
	static struct timespec t;
	pthread_t thread;

	is_dying = true;
	if (after_ns == 0)
		kill(getpid(), SIGKILL);
	t = (struct timespec){after_ns / 1000000000, after_ns % 1000000000};
	CHECK(pthread_create(&thread, NULL, die_soon, &t) == 0, "a thread");
	pthread_detach(thread);
}

/* Some of the ranks, never all, now or within a time in which the others shrink and grow. */
static void choose(void)
{
	int count = below(3) ? 1 : 1 + below(size - 1);
	long most_ns = 200000l << below(11), after_ns = below(2) ? below((int)most_ns) : 0;

	memset(state.goes, 0, sizeof state.goes);
	memcpy(state.before, pids, sizeof pids);
	for (int i = 0; i < count; i++)
		state.goes[below(3) && i == 0 ? 0 : below(size)] = true;
	state.goes[below(size)] = false;
	if (state.goes[id])
		arrange_death(after_ns);
}

/* The rank that knows most tells the others; false if a rank has died. */
static bool learn(void)
{
	int own[2] = {state.step, (int)getpid()}, all[2 * RANKS_MOST], root = 0;

	if (!is_fine(tutti_all_gather(own, all, 2, TUTTI_I32, comm, NULL)))
		return false;
	for (int r = 0; r < size; r++) {
		pids[r] = all[2 * r + 1];
		root = all[2 * r] > all[2 * root] ? r : root;
	}
	if (!is_fine(tutti_broadcast(&state, &state, sizeof state, TUTTI_U8, root, comm, NULL)))
		return false;
	/* It has heard of its step by this alone, maybe. */
	if (state.goes[id] && state.before[id] == (int)getpid() && !is_dying)
		arrange_death(0);
	return true;
}

static void shrink(void)
{
	tutti_comm *survivors = NULL;

	CHECK_OK(tutti_comm_shrink(comm, &survivors));
	tutti_comm_destroy(comm);
	comm = survivors;
}

static void check_numbers(const tutti_comm *grown)
{
	CHECK(tutti_size(grown) == size && tutti_rank(grown) == id, "rank %d of %d",
	      tutti_rank(grown), tutti_size(grown));
	int was = tutti_parent_rank(grown, id), here = 0;
	CHECK(was == tutti_rank(comm), "it was rank %d", was);
	for (int r = 0; r < size; r++)
		here += tutti_parent_rank(grown, r) >= 0;
	CHECK(here == tutti_size(comm), "%d were there, not %d", here, tutti_size(comm));
}

/* In place, by one call. */
static void recover_at_once(void)
{
	do {
		CHECK_OK(tutti_recover(&comm, size));
		CHECK(tutti_rank(comm) == id && tutti_size(comm) == size, "rank %d of %d",
		      tutti_rank(comm), tutti_size(comm));
	} while (!learn());
}

static void recover(void)
{
	if (is_at_once) {
		recover_at_once();
		return;
	}
	for (;;) {
		tutti_comm *grown = NULL;
		shrink();
		if (!is_fine(tutti_comm_grow(comm, size, NULL, &grown))) {
			CHECK(grown == NULL, "a communicator after an error");
			CHECK(strlen(tutti_comm_error(NULL)) > 30, "no message");
			continue;
		}
		check_numbers(grown);
		tutti_comm_destroy(comm);
		comm = grown;
		if (learn())
			return;
	}
}

static bool anybody_goes(void)
{
	for (int r = 0; r < size; r++)
		if (state.goes[r] && state.before[r] == pids[r])
			return true;
	return false;
}

static const char way_secret[] = "a secret that is in no variable";

/* A URL that rank 0 has opened, and all read in the file at path. */
static void share_url(const char *path, char *url, size_t bytes)
{
	const struct timespec nap = {0, 1000000};
	char fresh[320];
	FILE *file;

	if (id == 0 && !getenv("TUTTI_RESTARTED")) {
		snprintf(fresh, sizeof fresh, "%s.fresh", path);
		CHECK_OK(tutti_rendezvous_open(url, bytes));
		CHECK((file = fopen(fresh, "w")), "%s", fresh);
		CHECK(fputs(url, file) >= 0 && fclose(file) == 0, "%s", fresh);
		CHECK(rename(fresh, path) == 0, "%s", path);
	}
	while (!(file = fopen(path, "r")))
		nanosleep(&nap, NULL);
	CHECK(fgets(url, (int)bytes, file), "%s is empty", path);
	fclose(file);
}

static char way_path[300];

/* By the way that WAY says; false: by the environment, which a config replaces else. */
static bool find_way(tutti_config *config, char url[512])
{
	static const char *const launchers[] = {
		"MASTER_ADDR", "MASTER_PORT", "TUTTI_SECRET",    "RANK",
		"WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE"};
	const char *way = getenv("WAY"), *folder = getenv("TMPDIR");

	if (!way)
		return false;
	snprintf(way_path, sizeof way_path, "%.200s/tutti-way-%d-%d", folder ? folder : "/tmp",
		 number("MASTER_PORT"), (int)getppid());
	*config = (tutti_config){.rank = id, .world_size = size, .rendezvous = url};
	if (strncmp(way, "tcp", 3) == 0)
		snprintf(url, 512, "tcp://127.0.0.1:%d", number("MASTER_PORT"));
	else
		snprintf(url, 512, "file://%s", way_path);
	if (strncmp(way, "tcp", 3) == 0 || strncmp(way, "file", 4) == 0)
		config->secret = way_secret;
	if (strncmp(way, "url", 3) == 0)
		share_url(way_path, url, 512);
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		unsetenv(launchers[i]);
	return true;
}

/* What a child knows of the way, it keeps when its parent is gone. */
static void go_on_in_child(void)
{
	const char *way = getenv("WAY"), *kind = way ? strchr(way, ' ') : NULL;
	int all[RANKS_MOST];
	tutti_comm *child = NULL;

	if (!kind || getenv("TUTTI_RESTARTED"))
		return;
	for (int r = 0; r < size; r++)
		all[r] = r;
	if (strcmp(kind, " dup") == 0)
		CHECK_OK(tutti_comm_dup(comm, &child));
	else if (strcmp(kind, " split") == 0)
		CHECK_OK(tutti_comm_split(comm, 0, id, &(tutti_config){.name = "child"}, &child));
	else
		CHECK_OK(tutti_comm_create_from(comm, all, size, 0, NULL, &child));
	tutti_comm_destroy(comm);
	comm = child;
}

static void kills(int rounds)
{
	bool is_new = getenv("TUTTI_RESTARTED") != NULL;
	tutti_config config;
	char url[512];
	bool has_config = find_way(&config, url);

	/* Others may die while it joins: it tries again. */
	for (int i = 0; !comm; i++) {
		tutti_status status = tutti_init(&comm, has_config ? &config : NULL);
		CHECK(status == TUTTI_OK || (is_new && i < TRIES), "%s",
		      tutti_status_string(status));
	}
	CHECK(tutti_rank(comm) == id && tutti_size(comm) == size, "another number");
	memset(url, 0, sizeof url); /* the communicator has a copy */
	go_on_in_child();
	if (!learn())
		recover();
	for (;;) {
		if (anybody_goes()) {
			while (work_once())
				;
			recover();
			continue;
		}
		if (state.step == rounds) {
			unlink(way_path);
			return;
		}
		state.step++;
		choose();
	}
}

static void join_late(int ranks, const char *rendezvous)
{
	const tutti_config config = {
		.rank = id, .world_size = ranks, .rendezvous = rendezvous, .deterministic = 1};

	set_number("TUTTI_RESTARTED", 1);
	CHECK_OK(tutti_init(&comm, &config));
	CHECK(tutti_rank(comm) == id && tutti_size(comm) == ranks, "another number");
	for (int r = 0; r < ranks; r++)
		CHECK((tutti_parent_rank(comm, r) < 0) == (r >= id), "rank %d was there", r);
	CHECK(work_once(), "the first call");
}

/* Nobody starts dead ranks again: the last rank dies, then the first one. Without a death, and with
 * a size that is there already, all get a new communicator. */
static void fewer(void)
{
	int left = size;

	CHECK_OK(tutti_init(&comm, NULL));
	CHECK(tutti_recover(NULL, size) == TUTTI_ERR_INVALID, "NULL");
	CHECK(tutti_recover(&(tutti_comm *){NULL}, size) == TUTTI_ERR_INVALID, "NULL inside");
	CHECK(tutti_recover(&comm, 0) == TUTTI_ERR_INVALID, "to nothing");
	CHECK(work_once(), "after the errors");
	CHECK_OK(tutti_recover(&comm, size));
	CHECK(tutti_size(comm) == size && work_once(), "without a death");
	for (int i = 0; i < 2 && left > 1; i++) {
		if (id == (i == 0 ? size - 1 : 0))
			kill(getpid(), SIGKILL);
		while (work_once())
			;
		CHECK_OK(tutti_recover(&comm, size));
		CHECK(tutti_size(comm) == --left, "%d ranks, not %d", tutti_size(comm), left);
		CHECK(work_once(), "the first call");
	}
}

/* One rank, then two, then all. */
static void more(void)
{
	char place[64], later[300];
	const char *folder = getenv("TMPDIR");

	snprintf(place, sizeof place, "tcp://127.0.0.1:%d", number("MASTER_PORT"));
	snprintf(later, sizeof later, "file://%.200s/tutti-grow-%d-%d", folder ? folder : "/tmp",
		 number("MASTER_PORT"), (int)getppid());
	if (id == 0) {
		const tutti_config config = {
			.rank = 0, .world_size = 1, .rendezvous = place, .deterministic = 1};
		CHECK_OK(tutti_init(&comm, &config));
		grow_to(2, &(tutti_config){.rendezvous = place});
	} else if (id == 1) {
		join_late(2, place);
	}
	if (id < 2)
		grow_to(size, &(tutti_config){.rendezvous = later});
	else {
		const tutti_config config = {
			.rank = id, .world_size = size, .rendezvous = later, .deterministic = 1};
		set_number("TUTTI_RESTARTED", 1);
		CHECK_OK(tutti_init(&comm, &config));
		CHECK(tutti_parent_rank(comm, 1) == 1 && tutti_parent_rank(comm, id) == -1,
		      "who was there");
		CHECK(work_once(), "the first call");
	}
	CHECK(tutti_rank(comm) == id, "another number");
}

/* A new rank with the wrong secret is not let in, and disturbs no other. */
static void secret(void)
{
	char place[64], right[100];

	snprintf(place, sizeof place, "tcp://127.0.0.1:%d", number("MASTER_PORT"));
	snprintf(right, sizeof right, "%s", getenv("TUTTI_SECRET"));
	if (id < size - 1) {
		const tutti_config config = {.rank = id,
					     .world_size = size - 1,
					     .rendezvous = place,
					     .deterministic = 1};
		CHECK_OK(tutti_init(&comm, &config));
		grow_to(size, &(tutti_config){.rendezvous = place});
		return;
	}
	const tutti_config config = {
		.rank = id, .world_size = size, .rendezvous = place, .timeout_ms = 1500};
	set_number("TUTTI_RESTARTED", 1);
	CHECK(setenv("TUTTI_SECRET", "none of yours", 1) == 0, "setenv");
	tutti_status status = tutti_init(&comm, &config);
	CHECK(status == TUTTI_ERR_AUTH || status == TUTTI_ERR_TIMEOUT, "%s",
	      tutti_status_string(status));
	CHECK(setenv("TUTTI_SECRET", right, 1) == 0, "setenv");
	join_late(size, place);
}

/* Rank 0 makes another call than the others: both kinds say so. */
static void differ(void)
{
	tutti_comm *copy, *grown = NULL;
	int flag = 1;

	CHECK_OK(tutti_comm_dup(comm, &copy));
	tutti_status status =
		id == 0 ? tutti_comm_agree(copy, &flag) : tutti_comm_grow(copy, size, NULL, &grown);
	CHECK(status == TUTTI_ERR_MISMATCH, "%s", tutti_status_string(status));
	CHECK(grown == NULL, "a communicator after an error");
	tutti_comm_destroy(copy);
}

/* No new rank comes; sizes that differ or are too small: an error for all, and comm is what it was.
 */
static void absent(void)
{
	tutti_comm *grown = NULL;
	const tutti_config soon = {.timeout_ms = 700};
	char missing[32];

	CHECK_OK(tutti_init(&comm, NULL));
	CHECK(tutti_comm_grow(NULL, 2, NULL, &grown) == TUTTI_ERR_INVALID, "NULL grows");
	CHECK(tutti_comm_grow(comm, 2, NULL, NULL) == TUTTI_ERR_INVALID, "into nothing");
	CHECK(tutti_comm_grow(comm, 0, NULL, &grown) == TUTTI_ERR_INVALID, "to nothing");
	tutti_status status = tutti_comm_grow(comm, size + 1, &soon, &grown);
	CHECK(status == TUTTI_ERR_TIMEOUT, "%s", tutti_status_string(status));
	snprintf(missing, sizeof missing, "rank %d", size);
	CHECK(strstr(tutti_comm_error(NULL), missing), "it does not name %s", missing);
	CHECK(work_once(), "after nobody came");
	if (size > 1) {
		CHECK(tutti_comm_grow(comm, size - 1, NULL, &grown) == TUTTI_ERR_INVALID, "fewer");
		CHECK(tutti_comm_grow(comm, size + (id == 0), NULL, &grown) == TUTTI_ERR_MISMATCH,
		      "sizes that differ");
	}
	CHECK(grown == NULL && tutti_comm_status(comm) == TUTTI_OK, "it has an effect");
	CHECK(work_once(), "after the errors");
	if (size == 2)
		differ();
	grow_to(size, NULL);
}

/* The last rank is stopped, and the others go on without it: as long as it may wake up and find
 * them gone, no rank takes its place. */
static void left(void)
{
	tutti_comm *grown = NULL;
	int own = (int)getpid();

	CHECK_OK(tutti_init(&comm, NULL));
	CHECK_OK(tutti_all_gather(&own, pids, 1, TUTTI_I32, comm, NULL));
	if (id == size - 1)
		raise(SIGSTOP);
	while (work_once())
		;
	shrink();
	CHECK(tutti_size(comm) == size - 1, "%d go on", tutti_size(comm));
	tutti_status status = tutti_comm_grow(comm, size, NULL, &grown);
	CHECK(status == TUTTI_ERR_TIMEOUT && grown == NULL, "%s", tutti_status_string(status));
	CHECK(strstr(tutti_comm_error(NULL), "left behind"), "it does not say why");
	CHECK(work_once(), "after the error");
	if (id == 0)
		kill(pids[size - 1], SIGKILL);
}

/* Until the ranks that are left wait for new ones, for a minute at the most. */
static void wait_for_meeting(void)
{
	const struct timespec pause = {0, 1000000};
	struct sockaddr_in place = {.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)number("MASTER_PORT")),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bool is_there = false;

	for (int tries = 0; tries < 60000 && !is_there; tries++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(fd >= 0, "no socket");
		is_there = connect(fd, (struct sockaddr *)&place, sizeof place) == 0;
		close(fd);
		if (!is_there)
			nanosleep(&pause, NULL);
	}
	CHECK(is_there, "no rank has waited for new ones in a minute");
}

/* Rank 1 leaves, and its process ends only when the others grow. Then rank 2 exits with an error:
 * the launcher knows that the program goes on in place. */
static void lingers(void)
{
	CHECK_OK(tutti_init(&comm, NULL));
	for (int32_t phase = 0;; phase++) {
		CHECK_OK(tutti_all_reduce(&phase, &phase, 1, TUTTI_I32, TUTTI_MAX, comm, NULL));
		if (phase == 2)
			return;
		if (id == phase + 1) {
			tutti_comm_destroy(comm);
			if (phase == 0)
				wait_for_meeting();
			exit(1);
		}
		while (work_once())
			;
		CHECK_OK(tutti_recover(&comm, size));
	}
}

int main(int argc, char **argv)
{
	const char *seed = getenv("SEED"), *pass = argc > 1 ? argv[1] : "kills";

	state.random = seed ? strtoull(seed, NULL, 0) : 1;
	id = number("RANK");
	size = number("WORLD_SIZE");
	if (strcmp(pass, "kills") == 0)
		kills(argc > 2 ? atoi(argv[2]) : 5);
	else if (strcmp(pass, "recover") == 0) {
		is_at_once = true;
		kills(argc > 2 ? atoi(argv[2]) : 5);
	} else if (strcmp(pass, "fewer") == 0)
		fewer();
	else if (strcmp(pass, "more") == 0)
		more();
	else if (strcmp(pass, "secret") == 0)
		secret();
	else if (strcmp(pass, "absent") == 0)
		absent();
	else if (strcmp(pass, "left") == 0)
		left();
	else if (strcmp(pass, "lingers") == 0)
		lingers();
	else
		CHECK(false, "no pass is named %s", pass);
	tutti_comm_destroy(comm);
	return 0;
}
