/* tutti_mem_alloc: memory of the ranks' GPUs where the config names them, else of the window where
 * the ranks share one, else this process's own. */
#include "collectives/api/group.h"
#include "collectives/device/device.h"
#include "collectives/engine/engine.h"

#include "core/forks.h"
#include "core/known_memory.h"
#include "core/log.h"
#include "core/outcome.h"

#include <stdlib.h>

/* A rank's part of an allocation without a window, or on GPUs. */
struct alloc_report {
	uint64_t bytes;
	struct outcome outcome;
	struct cuda_region region;
};

/* As in a window: all have the memory or none, and different sizes are different calls. */
static tutti_status mem_alloc_judge(struct tutti_comm *comm, const struct alloc_report *all)
{
	int cause = outcome_cause(&all[0].outcome, sizeof *all, comm->size, NULL, 0);

	for (int r = 1; r < comm->size; r++)
		if (all[r].bytes != all[0].bytes) {
			fail(TUTTI_ERR_MISMATCH,
			     "The ranks did not make the same call: rank 0 called mem_alloc(%llu), "
			     "rank %d called mem_alloc(%llu).",
			     (unsigned long long)all[0].bytes, r, (unsigned long long)all[r].bytes);
			engine_fail(comm->engine, TUTTI_ERR_MISMATCH, last_error());
			return TUTTI_ERR_MISMATCH;
		}
	if (cause < 0)
		return TUTTI_OK;
	return fail(status_said(all[cause].outcome.status),
		    "tutti_mem_alloc of %zu bytes on each of %d ranks: rank %d has failed: %.400s",
		    (size_t)all[0].bytes, comm->size, cause, all[cause].outcome.message);
}

static tutti_status mem_alloc_new_reports(struct tutti_comm *comm, struct alloc_report **all)
{
	if ((*all = calloc((size_t)comm->size, sizeof **all)))
		return TUTTI_OK;
	fail(TUTTI_ERR_MEMORY, "rank %d: tutti_mem_alloc: no memory for %d reports", comm->rank,
	     comm->size);
	comm_lacks_memory(comm);
	return TUTTI_ERR_MEMORY;
}

/* all: room for the reports of all ranks. */
static tutti_status mem_alloc_gather(struct tutti_comm *comm, struct alloc_report *mine,
				     tutti_status status, struct alloc_report *all)
{
	struct call_args args = {.collective = COLL_MEM_REPORT,
				 .dtype = TUTTI_U8,
				 .count = sizeof *mine,
				 .send = mine,
				 .recv = all};

	outcome_set(&mine->outcome, status);
	TRY(comm_call_alone(comm, &args, NULL));
	return mem_alloc_judge(comm, all);
}

static tutti_status mem_alloc_agree(struct tutti_comm *comm, size_t bytes, tutti_status status)
{
	struct alloc_report mine = {.bytes = bytes}, *all;

	TRY(mem_alloc_new_reports(comm, &all));
	status = mem_alloc_gather(comm, &mine, status, all);
	free(all);
	return status;
}

/* Whether a rank takes another step; the regions of all for it. */
static bool mem_alloc_take_regions(const struct alloc_report *all, int size,
				   struct cuda_region *regions)
{
	bool goes_on = false;

	for (int r = 0; r < size; r++) {
		regions[r] = all[r].region;
		goes_on |= all[r].region.goes_on != 0;
	}
	return goes_on;
}

/* Each rank makes its part, and then they share them in steps, as many on each rank. */
static tutti_status mem_alloc_make_on_device(void **memory, const struct cuda_region_wish *wish,
					     struct tutti_comm *comm, struct alloc_report *all)
{
	struct alloc_report mine = {.bytes = wish->bytes};
	struct cuda_region *regions = calloc((size_t)comm->size, sizeof *regions);
	tutti_status status =
		regions ? device_mem_alloc(comm->device, wish, memory, &mine.region)
			: fail(TUTTI_ERR_MEMORY, "no memory for %d regions", comm->size);

	status = mem_alloc_gather(comm, &mine, status, all);
	while (status == TUTTI_OK && mem_alloc_take_regions(all, comm->size, regions))
		status = mem_alloc_gather(
			comm, &mine, device_mem_step(comm->device, regions, &mine.region), all);
	free(regions);
	return status;
}

static tutti_status mem_alloc_try_on_device(void **ptr, const struct cuda_region_wish *wish,
					    struct tutti_comm *comm, struct alloc_report *all)
{
	void *memory = NULL;
	tutti_status status = mem_alloc_make_on_device(&memory, wish, comm, all);

	if (status == TUTTI_OK)
		*ptr = memory;
	else if (memory)
		device_mem_free(memory);
	return status;
}

/* Where one rank cannot have the better memory, all take the plain one: they all see that. */
static tutti_status mem_alloc_on_device(void **ptr, size_t bytes, struct tutti_comm *comm)
{
	struct cuda_region_wish wish = {.bytes = bytes};
	struct alloc_report *all;

	TRY(mem_alloc_new_reports(comm, &all));
	tutti_status status = mem_alloc_try_on_device(ptr, &wish, comm, all);
	if (status == TUTTI_ERR_UNSUPPORTED) {
		log_info("GPU memory by IPC handles: %s", last_error());
		last_error_clear();
		wish.is_plain = true;
		status = mem_alloc_try_on_device(ptr, &wish, comm, all);
	}
	free(all);
	return status;
}

static tutti_status mem_alloc_of_process(void **ptr, size_t bytes, struct tutti_comm *comm)
{
	void *memory = NULL;
	tutti_status status = known_memory_map(&memory, bytes);

	if (comm->size > 1)
		status = mem_alloc_agree(comm, bytes, status);
	if (status != TUTTI_OK) {
		known_memory_unmap(memory);
		return status;
	}
	*ptr = memory;
	return TUTTI_OK;
}

static tutti_status mem_alloc_of_window(void **ptr, size_t bytes, struct tutti_comm *comm)
{
	struct call_args args = {.collective = COLL_MEM_ALLOC, .dtype = TUTTI_U8, .count = bytes};
	struct tutti_work *work;
	tutti_call call = {.work = &work};

	TRY(comm_call_alone(comm, &args, &call));
	struct tutti_work *held = work;
	work_retain(held);
	tutti_status status = work_wait(&work, 0);
	void *memory = work_memory(held);
	work_release(held);
	if (status != TUTTI_OK) {
		window_mem_drop(memory);
		return status;
	}
	if (comm->settings.env.huge_pages)
		window_mem_enlarge(memory, bytes, comm->size);
	*ptr = memory;
	return TUTTI_OK;
}

tutti_status tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	last_error_clear();
	group_note_errors();
	TRY(forks_check("tutti_mem_alloc"));
	if (!ptr || !comm)
		return fail(TUTTI_ERR_INVALID, "tutti_mem_alloc: %s is NULL", ptr ? "comm" : "ptr");
	if (bytes > (size_t)PTRDIFF_MAX / (size_t)comm->size)
		return fail(TUTTI_ERR_INVALID, "tutti_mem_alloc: %zu bytes on each of %d ranks",
			    bytes, comm->size);
	TRY(group_refuse("tutti_mem_alloc"));
	if (engine_status(comm->engine) != TUTTI_OK)
		return fail(engine_status(comm->engine), "%s", engine_error(comm->engine));
	if (comm->device && comm->settings.device_memory)
		return engine_name_error(comm->engine, mem_alloc_on_device(ptr, bytes, comm));
	TRY(engine_name_error(comm->engine, comm->window ? mem_alloc_of_window(ptr, bytes, comm)
							 : mem_alloc_of_process(ptr, bytes, comm)));
	if (bytes > 0 && known_memory_add(*ptr, bytes) != TUTTI_OK)
		last_error_clear(); /* it works as other memory does */
	return TUTTI_OK;
}

tutti_status tutti_mem_free(void *ptr)
{
	last_error_clear();
	if (!ptr)
		return TUTTI_OK;
	if (device_mem_free(ptr))
		return TUTTI_OK;
	if (known_memory_unmap(ptr))
		return TUTTI_OK;
	known_memory_remove(ptr);
	return window_mem_free(ptr);
}

tutti_status tutti_mem_place_of(tutti_mem_place *place, const void *ptr, size_t bytes,
				tutti_comm *comm)
{
	last_error_clear();
	TRY(forks_check("tutti_mem_place_of"));
	if (!place || !comm)
		return fail(TUTTI_ERR_INVALID, "tutti_mem_place_of: %s is NULL",
			    place ? "comm" : "place");
	if (!comm->window)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mem_place_of: the ranks of the communicator share no memory");
	struct window_place found = window_mem_place(comm->window, ptr, bytes);
	*place = (tutti_mem_place){found.allocation, found.offset};
	return TUTTI_OK;
}

void *tutti_mem_at(const tutti_mem_place *place, size_t bytes, tutti_comm *comm)
{
	if (!place || !comm || !comm->window || forks_check("tutti_mem_at") != TUTTI_OK)
		return NULL;
	return window_mem_at(comm->window, (struct window_place){place->allocation, place->offset},
			     bytes);
}

static tutti_status mem_alloc_check_hint(const char *name, const void *ptr, const tutti_comm *comm)
{
	last_error_clear();
	if (!ptr || !comm)
		return fail(TUTTI_ERR_INVALID, "%s: %s is NULL", name, ptr ? "comm" : "ptr");
	return TUTTI_OK;
}

/* For all communicators of the process: a device is opened once for all of them. */
tutti_status tutti_mem_register(void *ptr, size_t bytes, tutti_comm *comm)
{
	TRY(mem_alloc_check_hint("tutti_mem_register", ptr, comm));
	return bytes > 0 ? known_memory_add(ptr, bytes) : TUTTI_OK;
}

tutti_status tutti_mem_deregister(void *ptr, tutti_comm *comm)
{
	TRY(mem_alloc_check_hint("tutti_mem_deregister", ptr, comm));
	known_memory_remove(ptr);
	return TUTTI_OK;
}
