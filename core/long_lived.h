/* Memory that calls use again and again: of tutti_mem_alloc, and what the caller names by
 * tutti_mem_register. A fabric registers it with its devices once, and not in calls. Any thread. */
#ifndef CORE_LONG_LIVED_H
#define CORE_LONG_LIVED_H

#include <tutti/tutti.h>

/* One that registers memory. Its functions are called by any thread, one at a time, and call none
 * of these here. */
struct long_lived_watcher {
	void (*added)(struct long_lived_watcher *watcher, void *base, size_t bytes);
	void (*removed)(struct long_lived_watcher *watcher, void *base);
	struct long_lived_watcher *next;
};

/* Blocks may overlap; each base stands once. MEMORY: it is not recorded, and calls on it work as on
 * other memory. */
tutti_status long_lived_add(void *base, size_t bytes);
/* Before its pages go or change. A base that was not added is fine. */
void long_lived_remove(void *base);

/* Watchers are told of all that is there, and of what comes. */
void long_lived_watch(struct long_lived_watcher *watcher);
void long_lived_unwatch(struct long_lived_watcher *watcher);

#endif
