/* Memory that calls use again and again: a list, and those who watch it. */
#include "core/long_lived.h"

#include "core/status.h"

#include <pthread.h>
#include <stdlib.h>

struct long_lived_block {
	struct long_lived_block *next;
	void *base;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct long_lived_block *blocks;
static struct long_lived_watcher *watchers;

static struct long_lived_block **long_lived_find(const void *base)
{
	struct long_lived_block **at = &blocks;

	while (*at && (*at)->base != base)
		at = &(*at)->next;
	return at;
}

tutti_status long_lived_add(void *base, size_t bytes)
{
	struct long_lived_block *block = malloc(sizeof *block);

	if (!block)
		return fail(TUTTI_ERR_MEMORY, "no memory to record %zu bytes for registering",
			    bytes);
	pthread_mutex_lock(&lock);
	if (*long_lived_find(base)) {
		free(block);
	} else {
		*block = (struct long_lived_block){blocks, base, bytes};
		blocks = block;
		for (struct long_lived_watcher *w = watchers; w; w = w->next)
			w->added(w, base, bytes);
	}
	pthread_mutex_unlock(&lock);
	return TUTTI_OK;
}

void long_lived_remove(void *base)
{
	pthread_mutex_lock(&lock);
	struct long_lived_block **at = long_lived_find(base), *block = *at;
	if (block) {
		*at = block->next;
		for (struct long_lived_watcher *w = watchers; w; w = w->next)
			w->removed(w, base);
		free(block);
	}
	pthread_mutex_unlock(&lock);
}

void long_lived_watch(struct long_lived_watcher *watcher)
{
	pthread_mutex_lock(&lock);
	watcher->next = watchers;
	watchers = watcher;
	for (struct long_lived_block *b = blocks; b; b = b->next)
		watcher->added(watcher, b->base, b->bytes);
	pthread_mutex_unlock(&lock);
}

void long_lived_unwatch(struct long_lived_watcher *watcher)
{
	struct long_lived_watcher **at = &watchers;

	pthread_mutex_lock(&lock);
	while (*at && *at != watcher)
		at = &(*at)->next;
	if (*at)
		*at = watcher->next;
	pthread_mutex_unlock(&lock);
}
