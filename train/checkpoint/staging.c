/* A ring of slots between the caller, who fills the next free one, and the thread, which writes the
 * oldest full one. */
#include "train/checkpoint/staging.h"

#include "core/log.h"
#include "train/base/base.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct staging_slot {
	uint64_t at;
	size_t bytes;
	uint32_t *crc32c;
	char data[STAGING_SLOT_BYTES];
};

struct staging {
	int fd, timeout_ms;
	char path[DISK_PATH_BYTES];
	struct staging_slot *slots;
	size_t slot_count;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;      /* of all members below */
	pthread_cond_t changed;    /* any of them */
	size_t filled, written;    /* slots since the beginning: filled - written are full */
	bool is_ending, has_ended; /* nothing more comes; the thread is done */
	bool is_dropped;           /* full slots need not be written */
	struct kept_error failure; /* of the thread */
};

/* The oldest full slot, or NULL at the end. */
static struct staging_slot *next_full(struct staging *staging)
{
	struct staging_slot *slot = NULL;

	pthread_mutex_lock(&staging->lock);
	while (staging->written == staging->filled && !staging->is_ending)
		pthread_cond_wait(&staging->changed, &staging->lock);
	if (staging->written != staging->filled && !staging->is_dropped)
		slot = &staging->slots[staging->written % staging->slot_count];
	pthread_mutex_unlock(&staging->lock);
	return slot;
}

static void staging_slot_done(struct staging *staging)
{
	pthread_mutex_lock(&staging->lock);
	staging->written++;
	pthread_cond_broadcast(&staging->changed);
	pthread_mutex_unlock(&staging->lock);
}

static bool staging_is_wanted(struct staging *staging)
{
	pthread_mutex_lock(&staging->lock);
	bool is_dropped = staging->is_dropped;
	pthread_mutex_unlock(&staging->lock);
	return !is_dropped;
}

static tutti_status write_slots(struct staging *staging)
{
	struct staging_slot *slot;

	while ((slot = next_full(staging))) {
		*slot->crc32c = tutti_crc32c(*slot->crc32c, slot->data, slot->bytes);
		TRY(disk_write(staging->fd, staging->path, slot->data, slot->bytes, slot->at));
		staging_slot_done(staging);
	}
	return staging_is_wanted(staging) ? disk_sync(staging->fd, staging->path) : TUTTI_OK;
}

static void *staging_thread_main(void *arg)
{
	struct staging *staging = arg;
	tutti_status status = write_slots(staging);

	pthread_mutex_lock(&staging->lock);
	staging->failure = kept_error_of(status);
	staging->has_ended = true;
	pthread_cond_broadcast(&staging->changed);
	pthread_mutex_unlock(&staging->lock);
	return NULL;
}

/* The thread takes no signals: they are for the program's own threads. */
static tutti_status staging_start(struct staging *staging)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&staging->thread, NULL, staging_thread_main, staging);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		errno = error;
		return disk_fail("Starting a thread that writes", staging->path);
	}
	pthread_setname_np(staging->thread, "tutti-save");
	staging->has_thread = true;
	return TUTTI_OK;
}

tutti_status staging_create(struct staging **staging, int fd, const char *path, size_t bytes,
			    int timeout_ms)
{
	size_t slots = bytes / STAGING_SLOT_BYTES < 2 ? 2 : bytes / STAGING_SLOT_BYTES;
	struct staging *made = calloc(1, sizeof *made);

	if (!made)
		return fail_no_memory("writing '%s'", path_shown(path));
	made->fd = -1;
	made->timeout_ms = timeout_ms;
	made->slot_count = slots;
	made->slots = malloc(slots * sizeof *made->slots);
	pthread_cond_init(&made->changed, NULL);
	pthread_mutex_init(&made->lock, NULL);
	tutti_status status = disk_path(made->path, "%s", path);
	if (!made->slots)
		status = fail_no_memory("%zu bytes of staging to write '%s'",
					slots * STAGING_SLOT_BYTES, path_shown(path));
	if (status == TUTTI_OK) {
		made->fd = fd; /* before the thread uses it */
		status = staging_start(made);
	}
	if (status != TUTTI_OK) {
		made->fd = -1; /* the caller keeps it */
		staging_destroy(made);
		return status;
	}
	*staging = made;
	return TUTTI_OK;
}

/* Waits, with the lock, until fewer slots than most are full, or the thread has ended. Every slot
 * that is written restarts the deadline. */
static tutti_status wait_for_thread(struct staging *staging, size_t most)
{
	struct timespec deadline;
	size_t seen = staging->written;

	cond_deadline(&deadline, staging->timeout_ms);
	while (!staging->has_ended && staging->filled - staging->written >= most) {
		int error = pthread_cond_clockwait(&staging->changed, &staging->lock,
						   CLOCK_MONOTONIC, &deadline);
		if (staging->written != seen) {
			seen = staging->written;
			cond_deadline(&deadline, staging->timeout_ms);
		} else if (error == ETIMEDOUT && !staging->has_ended) {
			return fail(TUTTI_ERR_TIMEOUT,
				    "No part of '%s' was written for %d ms: the disk or the "
				    "file system's server does not answer.",
				    path_shown(staging->path), staging->timeout_ms);
		}
	}
	return TUTTI_OK;
}

/* Waits until *slot is free. */
static tutti_status next_free(struct staging *staging, struct staging_slot **slot)
{
	pthread_mutex_lock(&staging->lock);
	tutti_status status = wait_for_thread(staging, staging->slot_count);
	if (status == TUTTI_OK)
		status = kept_error_return(&staging->failure);
	*slot = &staging->slots[staging->filled % staging->slot_count];
	pthread_mutex_unlock(&staging->lock);
	return status;
}

tutti_status staging_write(struct staging *staging, uint64_t at, uint32_t *crc32c, const void *data,
			   size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		struct staging_slot *slot;
		TRY(next_free(staging, &slot));
		slot->at = at + done;
		slot->bytes = smaller(bytes - done, STAGING_SLOT_BYTES);
		slot->crc32c = crc32c;
		memcpy(slot->data, (const char *)data + done, slot->bytes);
		done += slot->bytes;
		pthread_mutex_lock(&staging->lock);
		staging->filled++;
		pthread_cond_broadcast(&staging->changed);
		pthread_mutex_unlock(&staging->lock);
	}
	return TUTTI_OK;
}

static void staging_end(struct staging *staging, bool is_dropped)
{
	pthread_mutex_lock(&staging->lock);
	staging->is_ending = true;
	staging->is_dropped |= is_dropped;
	pthread_cond_broadcast(&staging->changed);
	pthread_mutex_unlock(&staging->lock);
}

/* Waits for the writing thread. False: the disk, or its file server, does not answer in time. */
static bool thread_ends(struct staging *staging)
{
	pthread_mutex_lock(&staging->lock);
	bool has_ended = !staging->has_thread || wait_for_thread(staging, 0) == TUTTI_OK;
	pthread_mutex_unlock(&staging->lock);
	return has_ended;
}

static void staging_join(struct staging *staging)
{
	if (!staging->has_thread)
		return;
	pthread_join(staging->thread, NULL);
	staging->has_thread = false;
}

tutti_status staging_finish(struct staging *staging)
{
	staging_end(staging, false);
	pthread_mutex_lock(&staging->lock);
	tutti_status status = wait_for_thread(staging, 0);
	pthread_mutex_unlock(&staging->lock);
	if (status != TUTTI_OK)
		return status;
	staging_join(staging);
	status = kept_error_return(&staging->failure);
	int fd = staging->fd;
	staging->fd = -1;
	/* Some file systems report a failed write only here. */
	if (fd >= 0 && close(fd) != 0 && status == TUTTI_OK)
		status = disk_fail("Closing", staging->path);
	return status;
}

/* While the thread lives, its file is open and all of it allocated. */
static void leave_thread(struct staging *staging)
{
	log_notice("%s Its file stays open and its memory allocated.", tutti_comm_error(NULL));
	pthread_detach(staging->thread);
}

bool staging_destroy(struct staging *staging)
{
	if (!staging)
		return true;
	struct kept_error before = kept_error_of(TUTTI_ERR_TIMEOUT);
	staging_end(staging, true);
	if (!thread_ends(staging)) {
		leave_thread(staging);
		kept_error_return(&before);
		return false;
	}
	staging_join(staging);
	if (staging->fd >= 0)
		close(staging->fd);
	pthread_mutex_destroy(&staging->lock);
	pthread_cond_destroy(&staging->changed);
	free(staging->slots);
	free(staging);
	return true;
}
