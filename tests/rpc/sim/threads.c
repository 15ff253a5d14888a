/* Threads of the simulated world: real ones, of which one runs at a time. */
#include "tests/rpc/sim/rpc_sim.h"
#include "tests/rpc/sim/sim_threads.h"

#include "tests/random.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A function that the linker wraps: the real one, and ours. */
#define WRAPPED(name, ...)                                                                         \
	int __real_##name(__VA_ARGS__);                                                            \
	int __wrap_##name(__VA_ARGS__)

WRAPPED(pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
	void *arg);
WRAPPED(pthread_join, pthread_t thread, void **result);
WRAPPED(pthread_detach, pthread_t thread);
WRAPPED(pthread_mutex_lock, pthread_mutex_t *mutex);
WRAPPED(pthread_mutex_unlock, pthread_mutex_t *mutex);
WRAPPED(pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex);
WRAPPED(pthread_cond_clockwait, pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
	const struct timespec *at);
WRAPPED(pthread_cond_signal, pthread_cond_t *cond);
WRAPPED(pthread_cond_broadcast, pthread_cond_t *cond);
WRAPPED(clock_gettime, clockid_t clock, struct timespec *now);

enum { THREADS_MAX = 512 };

struct thread {
	pthread_t real;
	pthread_cond_t turn;
	void *(*fn)(void *arg);
	void *arg;
	const bool *is_done; /* waits for this, if not NULL ... */
	uint64_t until_ns;   /* ... or until then; 0: it may run */
	const pthread_cond_t *cond;
	bool is_signalled, has_ended, is_joined;
	int locks;
};

static struct {
	pthread_mutex_t baton; /* of the thread that runs */
	uint64_t random, seed, now_ns;
	struct thread *threads[THREADS_MAX], *current;
	int num_threads, alive;
} world = {.baton = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct thread *self;

void world_fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "SEED=%llu, at %llu us: ", (unsigned long long)world.seed,
		(unsigned long long)world.now_ns / 1000);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

uint64_t world_random(uint64_t n)
{
	return random_below(&world.random, n);
}

uint64_t world_now_ns(void)
{
	return world.now_ns;
}

/* ---- turns ---- */

static bool may_run(const struct thread *t)
{
	return !t->has_ended && ((t->is_done && *t->is_done) || t->until_ns <= world.now_ns);
}

/* Nothing can happen now: the clock goes on to what is next. */
static void advance(void)
{
	uint64_t next = world_network_due();

	for (int i = 0; i < world.num_threads; i++)
		if (!world.threads[i]->has_ended && world.threads[i]->until_ns < next)
			next = world.threads[i]->until_ns;
	if (next == UINT64_MAX)
		world_fail("all %d threads wait for ever", world.alive);
	world.now_ns = next;
}

static struct thread *choose(void)
{
	struct thread *ready[THREADS_MAX];

	for (;;) {
		int num_ready = 0, events = world_network_events();
		for (int i = 0; i < world.num_threads; i++)
			if (may_run(world.threads[i]))
				ready[num_ready++] = world.threads[i];
		if (num_ready + events == 0) {
			advance();
			continue;
		}
		if (world_random(32) == 0) /* time goes on while threads are ready, too */
			world.now_ns += world_random(4000000);
		int choice = (int)world_random((uint64_t)(num_ready + events));
		if (choice < num_ready)
			return ready[choice];
		world_network_event(choice - num_ready);
	}
}

static void give_turn(struct thread *to)
{
	world.current = to;
	__real_pthread_cond_signal(&to->turn);
}

static void await_turn(void)
{
	while (world.current != self)
		__real_pthread_cond_wait(&self->turn, &world.baton);
}

bool world_wait(const bool *is_done, uint64_t until_ns)
{
	self->is_done = is_done;
	self->until_ns = until_ns;
	struct thread *next = choose();
	if (next != self) {
		give_turn(next);
		await_turn();
	}
	self->is_done = NULL;
	self->until_ns = 0;
	return is_done && *is_done;
}

bool world_is_locked(void)
{
	return self->locks > 0;
}

void world_sleep_us(uint64_t us)
{
	world_wait(NULL, world.now_ns + us * 1000);
}

static void *run_thread(void *arg)
{
	self = arg;
	__real_pthread_mutex_lock(&world.baton);
	await_turn();
	void *result = self->fn(self->arg);
	self->has_ended = true;
	world.alive--;
	if (world.alive > 0)
		give_turn(choose());
	__real_pthread_mutex_unlock(&world.baton);
	return result;
}

static struct thread *start(void *(*fn)(void *), void *arg)
{
	struct thread *t = calloc(1, sizeof *t);

	if (!t || world.num_threads == THREADS_MAX)
		world_fail("no room for a thread");
	t->fn = fn;
	t->arg = arg;
	pthread_cond_init(&t->turn, NULL);
	world.threads[world.num_threads++] = t;
	world.alive++;
	if (__real_pthread_create(&t->real, NULL, run_thread, t) != 0)
		world_fail("pthread_create");
	return t;
}

struct body {
	void (*fn)(void *arg);
	void *arg;
};

static void *run_body(void *arg)
{
	struct body *body = arg;

	body->fn(body->arg);
	return NULL;
}

static int started(void)
{
	__real_pthread_mutex_lock(&world.baton);
	int n = world.num_threads;
	__real_pthread_mutex_unlock(&world.baton);
	return n;
}

void world_run(uint64_t seed, void (*body)(void *arg), void *arg)
{
	struct body first = {body, arg};

	world.seed = world.random = seed;
	world.now_ns = 1000000000u;
	world.num_threads = world.alive = 0;
	__real_pthread_mutex_lock(&world.baton);
	give_turn(start(run_body, &first));
	__real_pthread_mutex_unlock(&world.baton);
	/* When the first has ended, it has joined all that are joined; each may start others. */
	for (int i = 0; i < started(); i++)
		if (!world.threads[i]->is_joined)
			__real_pthread_join(world.threads[i]->real, NULL);
	for (int i = 0; i < world.num_threads; i++) {
		pthread_cond_destroy(&world.threads[i]->turn);
		free(world.threads[i]);
	}
}

/* ---- what rpc/ and the test call ---- */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	if (!self)
		return __real_pthread_create(thread, attr, fn, arg);
	*thread = start(fn, arg)->real;
	return 0;
}

static struct thread *thread_of(pthread_t real)
{
	for (int i = 0; i < world.num_threads; i++)
		if (!world.threads[i]->is_joined && pthread_equal(world.threads[i]->real, real))
			return world.threads[i];
	world_fail("a thread that is not there is joined");
}

int __wrap_pthread_join(pthread_t real, void **result)
{
	if (!self)
		return __real_pthread_join(real, result);
	struct thread *t = thread_of(real);
	if (world_is_locked())
		world_fail("pthread_join with a lock");
	world_wait(&t->has_ended, UINT64_MAX);
	t->is_joined = true;
	return __real_pthread_join(real, result);
}

int __wrap_pthread_detach(pthread_t real)
{
	return self ? 0 : __real_pthread_detach(real);
}

/* Another thread may come before. The lock is always free: who has one does not wait. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (self && !self->locks && world_random(3) == 0)
		world_wait(NULL, 0);
	if (self)
		self->locks++;
	return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	if (self)
		self->locks--;
	return __real_pthread_mutex_unlock(mutex);
}

static void wait_signal(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
	if (self->locks != 1)
		world_fail("a wait with %d locks", self->locks);
	__wrap_pthread_mutex_unlock(mutex);
	self->cond = cond;
	self->is_signalled = false;
	world_wait(&self->is_signalled, until_ns);
	self->cond = NULL;
	self->locks++;
	__real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	if (!self)
		return __real_pthread_cond_wait(cond, mutex);
	wait_signal(cond, mutex, UINT64_MAX);
	return 0;
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
				  const struct timespec *at)
{
	if (!self)
		return __real_pthread_cond_clockwait(cond, mutex, clock, at);
	wait_signal(cond, mutex, (uint64_t)at->tv_sec * 1000000000u + (uint64_t)at->tv_nsec);
	return 0;
}

static void signal_threads(const pthread_cond_t *cond, int most)
{
	for (int i = 0; i < world.num_threads && most > 0; i++)
		if (world.threads[i]->cond == cond && !world.threads[i]->is_signalled) {
			world.threads[i]->is_signalled = true;
			most--;
		}
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	if (!self)
		return __real_pthread_cond_signal(cond);
	signal_threads(cond, 1);
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
	if (!self)
		return __real_pthread_cond_broadcast(cond);
	signal_threads(cond, THREADS_MAX);
	return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!self)
		return __real_clock_gettime(clock, now);
	*now = (struct timespec){.tv_sec = (time_t)(world.now_ns / 1000000000u),
				 .tv_nsec = (long)(world.now_ns % 1000000000u)};
	return 0;
}
