/* Pages of this process, and those that it has opened, in one list. */
#include "cuda/turn_page.h"

#include "core/auth.h"
#include "core/shared_memory.h"
#include "core/status.h"
#include "cuda/driver.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct turn_page) <= TURN_PAGE_BYTES, "a page's flags fit in it");

static const struct shared_memory_use use = {.most_users = 2}; /* the list, and one that looks */

static struct opened {
	struct opened *next;
	struct shared_memory *memory;
} * all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */

static void draw_token(struct turn_page *page)
{
	auth_random(&page->token, sizeof page->token);
}

/* Under the lock. */
static tutti_status keep(int fd, struct turn_page **page)
{
	struct shared_memory *memory;

	TRY(shared_memory_open(&memory, fd, TURN_PAGE_BYTES, use));
	*page = memory->base;
	for (const struct opened *o = all; o; o = o->next)
		if (o->memory == memory) {
			shared_memory_close(memory);
			return TUTTI_OK;
		}
	struct opened *o = malloc(sizeof *o);
	if (!o) {
		shared_memory_close(memory);
		return fail(TUTTI_ERR_MEMORY, "no memory for an entry of a page");
	}
	*o = (struct opened){all, memory};
	all = o;
	return TUTTI_OK;
}

static tutti_status keep_locked(int fd, struct turn_page **page)
{
	pthread_mutex_lock(&lock);
	tutti_status status = keep(fd, page);
	pthread_mutex_unlock(&lock);
	return status;
}

tutti_status cuda_turn_page_make(struct cuda_turn_page *own)
{
	int fd;

	TRY(shared_memory_create("tutti-turns", TURN_PAGE_BYTES, &fd));
	tutti_status status = keep_locked(fd, &own->page);
	if (status != TUTTI_OK) {
		close(fd);
		return status;
	}
	own->fd = fd;
	draw_token(own->page);
	return TUTTI_OK;
}

void cuda_turn_page_renew(struct cuda_turn_page *own)
{
	memset(own->page, 0, sizeof *own->page);
	draw_token(own->page);
}

void cuda_turn_page_hide(struct cuda_turn_page *own)
{
	if (own->page && own->fd >= 0)
		close(own->fd);
	own->fd = -1;
}

void cuda_turn_page_drop(struct cuda_turn_page *own)
{
	struct opened **at = &all, *o;

	cuda_turn_page_hide(own);
	pthread_mutex_lock(&lock);
	while ((o = *at) && o->memory->base != own->page)
		at = &o->next;
	if (o) {
		*at = o->next;
		shared_memory_close(o->memory);
		free(o);
	}
	pthread_mutex_unlock(&lock);
	own->page = NULL;
}

tutti_status cuda_turn_page_open(struct turn_page **out, uint32_t pid, uint32_t fd, uint64_t token)
{
	struct turn_page *page = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
	int opened = open(path, O_RDWR | O_CLOEXEC);
	if (opened < 0)
		return fail(TUTTI_ERR_UNSUPPORTED, "%s, a page of flags, cannot be opened", path);
	tutti_status status = keep_locked(opened, &page);
	close(opened);
	TRY(status);
	if (page->token != token) /* of another view of processes, perhaps */
		return fail(TUTTI_ERR_UNSUPPORTED, "%s is not the page of flags that it should be",
			    path);
	*out = page;
	return TUTTI_OK;
}

tutti_status cuda_turn_page_pin(struct turn_page *page, CUdeviceptr *address)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUresult error = cuda->mem_host_register(
		page, TURN_PAGE_BYTES, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

	if (error != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		TRY(cuda_status(error, "mem_host_register"));
	CUDA_TRY(mem_host_get_device_pointer, address, page, 0);
	return TUTTI_OK;
}
