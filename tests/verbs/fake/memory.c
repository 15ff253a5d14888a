/* Protection domains and registered memory of the fake. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

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

/* Remote writes are writes, too: as ibv_reg_mr(3) says, they need both flags. Takes region, which
 * is freed when this fails. */
static struct ibv_mr *add(struct ibv_pd *pd, struct fake_region *region, int error)
{
	int access = region->access;

	fake_lock();
	if (error == 0)
		error = fake_call_error(FAKE_REG_MR, fake_device_of(pd->context));
	if ((access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE)) ||
	    region->base.length == 0)
		error = EINVAL;
	if (error == 0) {
		uint32_t key = fake.keys += 1 + fake_random(200);
		region->base.context = pd->context;
		region->base.pd = pd;
		region->base.lkey = key;
		region->base.rkey = key ^ 0x5a5a0000u;
		region->next = fake.regions;
		fake.regions = region;
		fake.views += region->view != NULL;
		((struct fake_domain *)pd)->users++;
		fake_context_of(pd->context)->regions++;
		fake.counts.regions++;
	}
	fake_unlock();
	if (error == 0)
		return &region->base;
	if (region->view)
		munmap(region->view, region->view_bytes);
	free(region);
	errno = error;
	return NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
	struct fake_region *region = calloc(1, sizeof *region);

	if (!region)
		return NULL;
	*region = (struct fake_region){.base = {.addr = at, .length = bytes}, .access = access};
	return add(pd, region, 0);
}

/* As the kernel: address and offset have the same place in their pages. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
				 int fd, int access)
{
	struct fake_region *region = calloc(1, sizeof *region);
	size_t from = offset % PAGE;
	off_t begin = lseek(fd, 0, SEEK_CUR);
	int error = 0;

	if (!region)
		return NULL;
	*region = (struct fake_region){.base = {.addr = (void *)(uintptr_t)iova, .length = bytes},
				       .access = access,
				       .view_from = from,
				       .view_bytes = from + bytes};
	if (fake_device_of(pd->context)->config.has_no_dma_buf)
		error = EOPNOTSUPP;
	else if (iova % PAGE != from)
		error = EINVAL;
	else
		region->view = mmap(NULL, region->view_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				    fd, begin + (off_t)(offset - from));
	if (region->view == MAP_FAILED) {
		region->view = NULL;
		error = errno;
	}
	return add(pd, region, error);
}

/* As with hardware, nothing says whether posted work requests name it: they fail when they run. */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_region **at = &fake.regions, *region = (struct fake_region *)mr;

	fake_lock();
	while (*at && &(*at)->base != mr)
		at = &(*at)->next;
	bool is_found = *at != NULL;
	if (is_found) {
		*at = (*at)->next;
		fake.views -= region->view != NULL;
		((struct fake_domain *)mr->pd)->users--;
		fake_context_of(mr->context)->regions--;
		fake.counts.regions--;
	} else {
		fake_violation("ibv_dereg_mr of what is not registered");
	}
	fake_unlock();
	if (!is_found)
		return EINVAL;
	if (region->view)
		munmap(region->view, region->view_bytes);
	free(region);
	return 0;
}

static const struct fake_region *find(uint32_t key, bool is_remote)
{
	const struct fake_region *r = fake.regions;

	while (r && key != (is_remote ? r->base.rkey : r->base.lkey))
		r = r->next;
	return r;
}

bool fake_is_allowed(const struct ibv_pd *pd, uint64_t at, size_t bytes, uint32_t key,
		     bool is_remote, int access)
{
	const struct fake_region *r = find(key, is_remote);
	uint64_t from = r ? (uintptr_t)r->base.addr : 0;

	return r && r->base.pd == pd && (r->access & access) == access && at >= from &&
	       at - from <= r->base.length && bytes <= r->base.length - (at - from);
}

bool fake_is_dma_buf(uint32_t key, bool is_remote)
{
	const struct fake_region *r = fake.views ? find(key, is_remote) : NULL;

	return r && r->view;
}

uint8_t *fake_reach(uint64_t at, uint32_t key, bool is_remote)
{
	const struct fake_region *r = fake.views ? find(key, is_remote) : NULL;

	return r && r->view ? r->view + r->view_from + (at - (uintptr_t)r->base.addr)
			    : (uint8_t *)(uintptr_t)at;
}
