/* Host memory whose lifetime this process knows: see known_memory.h. */
#include "core/known_memory.h"

#include "core/status.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

struct known_block {
	struct known_block *next;
	void *base;
	size_t bytes;  /* that are known; 0: mapped only                                */
	size_t mapped; /* by known_memory_map                                           */
	void *handles[KNOWN_MEMORY_USERS];
};

/* Held while users register, which takes long. */
static pthread_mutex_t known_changes = PTHREAD_MUTEX_INITIALIZER;
/* Taken inside of it by writers, and alone by readers. */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known_block *known_blocks;
static struct known_memory_user *known_users[KNOWN_MEMORY_USERS];

/* Under known_changes. */
static struct known_block **known_find(const void *base)
{
	struct known_block **at = &known_blocks;

	while (*at && (*at)->base != base)
		at = &(*at)->next;
	return at;
}

static struct known_block *known_insert(void *base)
{
	struct known_block *block = calloc(1, sizeof *block);

	if (!block)
		return NULL;
	block->base = base;
	pthread_mutex_lock(&known_lock);
	block->next = known_blocks;
	known_blocks = block;
	pthread_mutex_unlock(&known_lock);
	return block;
}

static void known_set_bytes(struct known_block *block, size_t bytes)
{
	pthread_mutex_lock(&known_lock);
	block->bytes = bytes;
	pthread_mutex_unlock(&known_lock);
}

static void known_set_handle(struct known_block *block, int slot, void *handle)
{
	pthread_mutex_lock(&known_lock);
	block->handles[slot] = handle;
	pthread_mutex_unlock(&known_lock);
}

static void known_register(struct known_block *block, int slot)
{
	struct known_memory_user *user = known_users[slot];

	if (user && block->bytes)
		known_set_handle(block, slot, user->add(user, block->base, block->bytes));
}

static void known_deregister(struct known_block *block, int slot)
{
	struct known_memory_user *user = known_users[slot];
	void *handle = block->handles[slot];

	if (!handle)
		return;
	known_set_handle(block, slot, NULL);
	user->remove(user, handle);
}

static void known_forget(struct known_block **at)
{
	struct known_block *block = *at;

	for (int slot = 0; slot < KNOWN_MEMORY_USERS; slot++)
		known_deregister(block, slot);
	known_set_bytes(block, 0);
	if (block->mapped)
		return;
	pthread_mutex_lock(&known_lock);
	*at = block->next;
	pthread_mutex_unlock(&known_lock);
	free(block);
}

tutti_status known_memory_add(void *base, size_t bytes)
{
	pthread_mutex_lock(&known_changes);
	struct known_block *block = *known_find(base);
	if (!block)
		block = known_insert(base);
	if (block && !block->bytes) {
		known_set_bytes(block, bytes);
		for (int slot = 0; slot < KNOWN_MEMORY_USERS; slot++)
			known_register(block, slot);
	}
	pthread_mutex_unlock(&known_changes);
	return block ? TUTTI_OK
		     : fail(TUTTI_ERR_MEMORY, "no memory to record %zu bytes for registering",
			    bytes);
}

void known_memory_remove(void *base)
{
	pthread_mutex_lock(&known_changes);
	struct known_block **at = known_find(base);
	if (*at)
		known_forget(at);
	pthread_mutex_unlock(&known_changes);
}

tutti_status known_memory_map(void **base, size_t bytes)
{
	size_t mapped = bytes ? bytes : 1;
	void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		fail_errno("tutti_mem_alloc: no memory for %zu bytes", bytes);
		return TUTTI_ERR_MEMORY;
	}
	pthread_mutex_lock(&known_changes);
	/* Its address may be that of memory which was named and has been unmapped since. */
	struct known_block **at = known_find(p);
	if (*at)
		known_forget(at);
	struct known_block *block = known_insert(p);
	if (block)
		block->mapped = mapped;
	pthread_mutex_unlock(&known_changes);
	if (!block) {
		munmap(p, mapped);
		return fail(TUTTI_ERR_MEMORY, "tutti_mem_alloc: no memory for %zu bytes", bytes);
	}
	if (bytes >= HUGE_PAGE)
		(void)madvise(p, bytes, MADV_HUGEPAGE); /* a hint; small pages do as well */
	*base = p;
	return TUTTI_OK;
}

bool known_memory_unmap(void *base)
{
	size_t mapped = 0;

	pthread_mutex_lock(&known_changes);
	struct known_block **at = known_find(base);
	if (*at && (*at)->mapped) {
		mapped = (*at)->mapped;
		(*at)->mapped = 0;
		known_forget(at);
	}
	pthread_mutex_unlock(&known_changes);
	if (mapped)
		munmap(base, mapped);
	return mapped > 0;
}

void known_memory_join(struct known_memory_user *user)
{
	int slot = 0;

	pthread_mutex_lock(&known_changes);
	while (slot < KNOWN_MEMORY_USERS && known_users[slot])
		slot++;
	user->slot = slot < KNOWN_MEMORY_USERS ? slot + 1 : 0;
	if (user->slot) {
		known_users[slot] = user;
		for (struct known_block *b = known_blocks; b; b = b->next)
			known_register(b, slot);
	}
	pthread_mutex_unlock(&known_changes);
}

void known_memory_leave(struct known_memory_user *user)
{
	pthread_mutex_lock(&known_changes);
	for (struct known_block *b = known_blocks; b && user->slot; b = b->next)
		known_deregister(b, user->slot - 1);
	if (user->slot)
		known_users[user->slot - 1] = NULL;
	user->slot = 0;
	pthread_mutex_unlock(&known_changes);
}

bool known_memory_read(const struct known_memory_user *user, const void *ptr, size_t bytes,
		       void (*read)(const void *handle, void *to), void *to)
{
	const void *handle = NULL;

	if (!user->slot)
		return false;
	pthread_mutex_lock(&known_lock);
	for (struct known_block *b = known_blocks; b && !handle; b = b->next) {
		uintptr_t offset = (uintptr_t)ptr - (uintptr_t)b->base;
		if (offset < b->bytes && bytes <= b->bytes - offset)
			handle = b->handles[user->slot - 1];
	}
	if (handle)
		read(handle, to);
	pthread_mutex_unlock(&known_lock);
	return handle != NULL;
}
