/* Protection domains and registered memory of the fake. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <stdlib.h>

#undef ibv_reg_mr

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_domain *domain = calloc(1, sizeof *domain);

	if (!domain)
		return NULL;
	domain->base.context = context;
	fake_lock();
	int error = fake_call_error(FAKE_ALLOC_PD, fake_device_of(context));
	if (error == 0) {
		fake_context_of(context)->domains++;
		fake.counts.domains++;
	}
	fake_unlock();
	if (error == 0)
		return &domain->base;
	free(domain);
	errno = error;
	return NULL;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct fake_domain *domain = (struct fake_domain *)pd;

	fake_lock();
	bool is_used = domain->users > 0;
	if (!is_used) {
		fake_context_of(pd->context)->domains--;
		fake.counts.domains--;
	}
	fake_unlock();
	if (is_used)
		return EBUSY;
	free(domain);
	return 0;
}

/* Remote writes are writes, too: as ibv_reg_mr(3) says, they need both flags. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
	struct fake_region *region = calloc(1, sizeof *region);
	int error;

	if (!region)
		return NULL;
	fake_lock();
	error = fake_call_error(FAKE_REG_MR, fake_device_of(pd->context));
	if ((access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE)) || bytes == 0)
		error = EINVAL;
	if (error == 0) {
		uint32_t key = fake.keys += 1 + fake_random(200);
		region->base = (struct ibv_mr){.context = pd->context,
					       .pd = pd,
					       .addr = at,
					       .length = bytes,
					       .lkey = key,
					       .rkey = key ^ 0x5a5a0000u};
		region->access = access;
		region->next = fake.regions;
		fake.regions = region;
		((struct fake_domain *)pd)->users++;
		fake_context_of(pd->context)->regions++;
		fake.counts.regions++;
	}
	fake_unlock();
	if (error == 0)
		return &region->base;
	free(region);
	errno = error;
	return NULL;
}

/* As with hardware, nothing says whether posted work requests name it: they fail when they run. */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_region **at = &fake.regions;

	fake_lock();
	while (*at && &(*at)->base != mr)
		at = &(*at)->next;
	bool is_found = *at != NULL;
	if (is_found) {
		*at = (*at)->next;
		((struct fake_domain *)mr->pd)->users--;
		fake_context_of(mr->context)->regions--;
		fake.counts.regions--;
	} else {
		fake_violation("ibv_dereg_mr of what is not registered");
	}
	fake_unlock();
	if (!is_found)
		return EINVAL;
	free(mr);
	return 0;
}

bool fake_is_allowed(const struct ibv_pd *pd, uint64_t at, size_t bytes, uint32_t key,
		     bool is_remote, int access)
{
	for (const struct fake_region *r = fake.regions; r; r = r->next) {
		uint64_t from = (uintptr_t)r->base.addr;
		if (key != (is_remote ? r->base.rkey : r->base.lkey))
			continue;
		return r->base.pd == pd && (r->access & access) == access && at >= from &&
		       at - from <= r->base.length && bytes <= r->base.length - (at - from);
	}
	return false;
}
