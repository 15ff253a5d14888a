/* The memfds that this process has made or opened, in one list. */
#include "cuda/turn_page.h"

#include "core/auth.h"
#include "core/shared_memory.h"
#include "core/status.h"
#include "cuda/driver.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_BYTES ((size_t)128 << 10)
#define SLOTS      16u /* pages of a file */
#define FILE_BYTES (SLOTS * SLOT_BYTES)

_Static_assert(sizeof(struct turn_page) <= SLOT_BYTES, "a page fits in its slot");

static const struct shared_memory_use use = {.most_users = 2}; /* the list, and one that looks */

static struct file {
	struct file *next;
	struct shared_memory *memory;
	bool is_pinned;
} * files;
static int own_fd;            /* of the latest that is this process's own, ... */
static struct file *own_file; /* ... which is NULL at first                    */
static unsigned own_slots;    /* that are taken                                */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all this */

static struct turn_page *page_at(const struct file *file, uint32_t slot)
{
	return (struct turn_page *)(void *)((char *)file->memory->base + slot * SLOT_BYTES);
}

/* The file's entry in the list. Under the lock, as are the next ones. */
static tutti_status turn_page_keep(int fd, struct file **out)
{
	struct shared_memory *memory;
	struct file *file = files;

	TRY(shared_memory_open(&memory, fd, FILE_BYTES, use));
	while (file && file->memory != memory)
		file = file->next;
	if (file) {
		shared_memory_close(memory); /* it is held once */
	} else if ((file = malloc(sizeof *file))) {
		*file = (struct file){.next = files, .memory = memory};
		files = file;
	} else {
		shared_memory_close(memory);
		return fail(TUTTI_ERR_MEMORY, "no memory for an entry of flags");
	}
	*out = file;
	return TUTTI_OK;
}

static tutti_status turn_page_make_file(void)
{
	struct file *file;
	int fd;

	TRY(shared_memory_create("tutti-turns", FILE_BYTES, &fd));
	tutti_status status = turn_page_keep(fd, &file);
	if (status != TUTTI_OK) {
		close(fd);
		return status;
	}
	own_fd = fd;
	own_file = file;
	own_slots = 0;
	return TUTTI_OK;
}

static tutti_status turn_page_make(struct cuda_turn_page *own)
{
	if (!own_file || own_slots == SLOTS)
		TRY(turn_page_make_file());
	own->fd = (uint32_t)own_fd;
	own->slot = own_slots++;
	own->page = page_at(own_file, own->slot);
	auth_random(&own->page->token, sizeof own->page->token);
	return TUTTI_OK;
}

tutti_status cuda_turn_page_make(struct cuda_turn_page *own)
{
	pthread_mutex_lock(&lock);
	tutti_status status = turn_page_make(own);
	pthread_mutex_unlock(&lock);
	return status;
}

/* Those who had mapped it look at its words meanwhile (segment_is_read in segment.c). */
void cuda_turn_page_renew(struct cuda_turn_page *own)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)own->page;
	uint64_t token;

	for (size_t i = 0; i < sizeof *own->page / sizeof *words; i++)
		atomic_store_explicit(&words[i], 0, memory_order_relaxed);
	auth_random(&token, sizeof token);
	atomic_store((_Atomic uint64_t *)&own->page->token, token);
}

tutti_status cuda_turn_page_open(struct turn_page **out, uint32_t pid, uint32_t fd, uint32_t slot,
				 uint64_t token)
{
	struct file *file = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
	int opened = open(path, O_RDWR | O_CLOEXEC);
	if (opened < 0 || slot >= SLOTS) {
		if (opened >= 0)
			close(opened);
		return fail(TUTTI_ERR_UNSUPPORTED, "%s, the flags of a rank, cannot be opened",
			    path);
	}
	pthread_mutex_lock(&lock);
	tutti_status status = turn_page_keep(opened, &file);
	pthread_mutex_unlock(&lock);
	close(opened);
	TRY(status);
	if (page_at(file, slot)->token != token) /* of another view of processes, perhaps */
		return fail(TUTTI_ERR_UNSUPPORTED, "%s does not have the flags of a rank", path);
	*out = page_at(file, slot);
	return TUTTI_OK;
}

static struct file *turn_page_file_of(const struct turn_page *page)
{
	struct file *file = files;

	while (file && (uintptr_t)page - (uintptr_t)file->memory->base >= FILE_BYTES)
		file = file->next;
	return file;
}

static tutti_status turn_page_pin(struct file *file, const struct turn_page *page,
				  CUdeviceptr *address)
{
	const struct cuda_driver *cuda = cuda_driver();
	char *base = file->memory->base;

	if (!file->is_pinned)
		CUDA_TRY(mem_host_register, base, FILE_BYTES,
			 CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	file->is_pinned = true;
	CUDA_TRY(mem_host_get_device_pointer, address, base, 0);
	*address += (uintptr_t)page - (uintptr_t)base;
	return TUTTI_OK;
}

tutti_status cuda_turn_page_pin(struct turn_page *page, CUdeviceptr *address)
{
	pthread_mutex_lock(&lock);
	struct file *file = turn_page_file_of(page);
	tutti_status status = file ? turn_page_pin(file, page, address)
				   : fail(TUTTI_ERR_INTERNAL, "flags that are in no file");
	pthread_mutex_unlock(&lock);
	return status;
}
