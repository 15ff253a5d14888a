/* slow: 3 s */
/* Would break: bytes that a ring loses or invents, a sleeper that nobody wakes, or an index stored
 * by a hostile peer that leads us outside the ring. */
#include "transport/shm/byte_ring.h"

#include "core/status.h"
#include "tests/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

#define RING ((size_t)16 << 10)

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Byte number i of the stream. */
static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 167 + (i >> 8) * 13);
}

/* A ring on memory of this process, with canaries around the bytes. */
struct fixture {
	struct byte_ring_shared *shared;
	uint8_t *memory;
	struct byte_ring_writer writer;
	struct byte_ring_reader reader;
};

static void fixture_open(struct fixture *f, size_t capacity)
{
	f->shared = aligned_alloc(BYTE_RING_LINE, sizeof *f->shared);
	f->memory = malloc(3 * capacity);
	assert_true(f->shared && f->memory);
	memset(f->shared, 0, sizeof *f->shared);
	memset(f->memory, 0xcc, 3 * capacity);
	f->writer = (struct byte_ring_writer){
		.shared = f->shared, .bytes = f->memory + capacity, .capacity = capacity};
	f->reader = (struct byte_ring_reader){
		.shared = f->shared, .bytes = f->memory + capacity, .capacity = capacity};
}

static void fixture_close(struct fixture *f)
{
	for (size_t i = 0; i < f->writer.capacity; i++) {
		assert_int_equal(f->memory[i], 0xcc);
		assert_int_equal(f->memory[2 * f->writer.capacity + i], 0xcc);
	}
	free(f->shared);
	free(f->memory);
}

static size_t write_some(struct byte_ring_writer *writer, size_t n)
{
	uint8_t bytes[512];
	size_t room = byte_ring_room(writer, n);

	n = n < room ? n : room;
	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_at(writer->written + i);
	ring_write(writer, bytes, n);
	return n;
}

static size_t read_some(struct byte_ring_reader *reader, size_t n)
{
	uint8_t bytes[512];
	uint64_t at = reader->read;
	size_t available = byte_ring_available(reader, n);

	n = n < available ? n : available;
	byte_ring_read(reader, bytes, n);
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != byte_at(at + i))
			fail_msg("byte %llu is wrong", (unsigned long long)(at + i));
	return n;
}

static void test_bytes(void **state)
{
	uint64_t seed = (uint64_t)time(NULL), random = seed;
	struct fixture f;

	printf("seed %llu\n", (unsigned long long)seed);
	fixture_open(&f, 1024);
	while (f.reader.read < 200000) {
		uint64_t choice = next(&random);
		size_t n = next(&random) % 512;
		if (choice % 4 == 0)
			write_some(&f.writer, n);
		else if (choice % 4 == 1)
			byte_ring_publish(&f.writer);
		else if (choice % 4 == 2)
			read_some(&f.reader, n);
		else
			byte_ring_release(&f.reader);
		/* Nothing is seen before it is published, or reused before it is released. */
		assert_true(f.reader.read <= f.writer.published);
		assert_true(f.writer.written - f.reader.released <= 1024);
	}
	fixture_close(&f);
}

/* Two threads that sleep whenever there is nothing to do: a lost wake-up hangs until the alarm. */
struct pair {
	struct fixture f;
	sem_t reader_doorbell, writer_doorbell;
	uint64_t total;
	unsigned writer_slept, reader_slept;
};

static void *write_all(void *arg)
{
	struct pair *d = arg;
	struct byte_ring_writer *writer = &d->f.writer;
	uint64_t random = 5;

	while (writer->written < d->total) {
		size_t n = 1 + next(&random) % 200;
		if (n > d->total - writer->written)
			n = (size_t)(d->total - writer->written);
		if (write_some(writer, n) && next(&random) % 4)
			if (byte_ring_publish(writer))
				sem_post(&d->reader_doorbell);
		if (byte_ring_room(writer, 1))
			continue;
		if (byte_ring_publish(writer))
			sem_post(&d->reader_doorbell);
		byte_ring_writer_sleeps(writer, true);
		if (!byte_ring_room(writer, 1)) {
			d->writer_slept++;
			sem_wait(&d->writer_doorbell);
		}
		byte_ring_writer_sleeps(writer, false);
	}
	if (byte_ring_publish(writer))
		sem_post(&d->reader_doorbell);
	return NULL;
}

static void test_sleepers(void **state)
{
	struct pair d = {.total = 3000000};
	struct byte_ring_reader *reader = &d.f.reader;
	pthread_t thread;
	uint64_t random = 9;

	fixture_open(&d.f, 1024);
	sem_init(&d.reader_doorbell, 0, 0);
	sem_init(&d.writer_doorbell, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, write_all, &d), 0);
	while (reader->read < d.total) {
		if (read_some(reader, 1 + next(&random) % 300)) {
			if (next(&random) % 4 && byte_ring_release(reader))
				sem_post(&d.writer_doorbell);
			continue;
		}
		if (byte_ring_release(reader))
			sem_post(&d.writer_doorbell);
		byte_ring_reader_sleeps(reader, true);
		if (!byte_ring_available(reader, 1)) {
			d.reader_slept++;
			sem_wait(&d.reader_doorbell);
		}
		byte_ring_reader_sleeps(reader, false);
	}
	pthread_join(thread, NULL);
	assert_true(d.writer_slept + d.reader_slept > 0);
	sem_destroy(&d.reader_doorbell);
	sem_destroy(&d.writer_doorbell);
	fixture_close(&d.f);
}

/* One end of two rings that never spins on an index: whenever nothing is there it says that it
 * sleeps and waits for its doorbell. It spins on that, so that the two get close often, unless the
 * other end has no core: then it sleeps, for a yield could cost the time slices of busy processes.
 */
struct player {
	struct byte_ring_writer out;
	struct byte_ring_reader in;
	sem_t *doorbell, *other_doorbell;
	uint64_t random;
	unsigned rounds;
};

static void await_doorbell(sem_t *doorbell)
{
	for (int looks = 0; sem_trywait(doorbell) != 0; looks++)
		if (looks == 1000) {
			sem_wait(doorbell);
			return;
		}
}

static void await_byte(struct player *p)
{
	while (!byte_ring_available(&p->in, 1)) {
		byte_ring_reader_sleeps(&p->in, true);
		if (byte_ring_available(&p->in, 1))
			break;
		await_doorbell(p->doorbell);
	}
	byte_ring_reader_sleeps(&p->in, false);
	byte_ring_read(&p->in, NULL, 1);
	byte_ring_release(&p->in);
}

static void play_byte(struct player *p)
{
	for (volatile uint64_t delay = next(&p->random) % 64; delay > 0; delay--)
		continue;
	assert_true(byte_ring_room(&p->out, 1) > 0);
	ring_write(&p->out, NULL, 1);
	if (byte_ring_publish(&p->out))
		sem_post(p->other_doorbell);
}

static void *answer(void *arg)
{
	struct player *p = arg;

	for (unsigned i = 0; i < p->rounds; i++) {
		await_byte(p);
		play_byte(p);
	}
	return NULL;
}

static void test_close_calls(void **state)
{
	const unsigned rounds = 300000;
	struct fixture there, back;
	sem_t doorbells[2];
	pthread_t thread;

	fixture_open(&there, 1024);
	fixture_open(&back, 1024);
	sem_init(&doorbells[0], 0, 0);
	sem_init(&doorbells[1], 0, 0);
	struct player a = {there.writer, back.reader, &doorbells[0], &doorbells[1], 1, rounds};
	struct player b = {back.writer, there.reader, &doorbells[1], &doorbells[0], 2, rounds};
	assert_int_equal(pthread_create(&thread, NULL, answer, &b), 0);
	for (unsigned i = 0; i < rounds; i++) {
		play_byte(&a);
		await_byte(&a);
	}
	pthread_join(thread, NULL);
	sem_destroy(&doorbells[0]);
	sem_destroy(&doorbells[1]);
	fixture_close(&there);
	fixture_close(&back);
}

/* Whatever the other side stores, it is at most seen as broken. */
static void test_hostile_indices(void **state)
{
	const uint64_t bad[] = {0, 99, 100 + 1025, 1u << 20, UINT64_MAX, 1ull << 63};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct fixture f;
		fixture_open(&f, 1024);
		write_some(&f.writer, 100);
		byte_ring_publish(&f.writer);
		assert_int_equal(read_some(&f.reader, 100), 100);
		atomic_store(&f.shared->written, bad[i]); /* 100 is right */
		assert_int_equal(byte_ring_available(&f.reader, 1), 0);
		assert_true(f.reader.is_broken);
		assert_int_equal(byte_ring_available(&f.reader, 1), 0);
		/* The writer has 100 written; the reader may be anywhere in 0..100. */
		atomic_store(&f.shared->read, bad[i] > 99 ? bad[i] : 101);
		assert_int_equal(byte_ring_room(&f.writer, 1024), 0);
		assert_true(f.writer.is_broken);
		fixture_close(&f);
	}
}

/* A peer's descriptor is believed only when it cannot shrink under us and has the right size. */
static void test_foreign_memory(void **state)
{
	struct shared_memory *made, *opened;
	int fd, loose = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_int_equal(ring_pair_create(&made, RING, &fd), TUTTI_OK);
	assert_int_not_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(ring_pair_open(&opened, 2 * RING, fd), TUTTI_ERR_MISMATCH);
	assert_int_equal(ring_pair_open(&opened, RING + 1, fd), TUTTI_ERR_MISMATCH);
	assert_int_equal(ring_pair_open(&opened, 0, fd), TUTTI_ERR_MISMATCH);
	assert_int_equal(ring_pair_open(&opened, SIZE_MAX, fd), TUTTI_ERR_MISMATCH);
	assert_int_equal(ftruncate(loose, lseek(fd, 0, SEEK_END)), 0);
	assert_int_equal(ring_pair_open(&opened, RING, loose), TUTTI_ERR_MISMATCH);
	assert_int_equal(ring_pair_open(&opened, RING, file), TUTTI_ERR_MISMATCH);
	assert_int_equal(ring_pair_open(&opened, RING, -1), TUTTI_ERR_MISMATCH);
	assert_int_equal(fcntl(loose, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(ring_pair_open(&opened, RING, loose), TUTTI_OK);
	shared_memory_close(opened);
	assert_int_equal(ring_pair_open(&opened, RING, fd), TUTTI_OK); /* the other end */
	struct shared_memory *third;
	assert_int_equal(ring_pair_open(&third, RING, fd), TUTTI_ERR_MISMATCH);
	shared_memory_close(made);

	struct byte_ring_writer out;
	struct byte_ring_reader in;
	ring_pair_ends(opened, false, &out, &in); /* still there for the one that is left */
	ring_write(&out, "x", 1);
	shared_memory_close(opened);
	shared_memory_close(NULL);
	close(fd);
	close(loose);
	close(file);
}

/* A limit of files' lengths is no end of the process. */
static void test_limited_files(void **state)
{
	struct rlimit whole, little = {4096, 0};
	struct shared_memory *made;
	int fd;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
	little.rlim_max = whole.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	assert_int_equal(ring_pair_create(&made, RING, &fd), TUTTI_ERR_SYSTEM);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
	assert_non_null(strstr(last_error(), strerror(EFBIG)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),          cmocka_unit_test(test_sleepers),
		cmocka_unit_test(test_close_calls),    cmocka_unit_test(test_hostile_indices),
		cmocka_unit_test(test_foreign_memory), cmocka_unit_test(test_limited_files),
	};
	test_limit(280); /* a lost wake-up ends here; a loaded machine takes its time */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
