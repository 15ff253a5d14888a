#include "cuda/residency.h"

#include "cuda/kernels/channel.h"

#include <assert.h>
#include <pthread.h>

/* A GPU of compute capability 7.5 or more holds 128 kernels at once, and each of ours has at least
 * one block. The other 16 are left to the program. */
#define GRIDS_MOST 112
/* One of LEFT_OF multiprocessors, and at least one, is left to kernels that end by themselves. */
#define LEFT_OF 8

static struct {
	unsigned taken;   /* blocks                                                        */
	unsigned sharing; /* communicators for which the device has other processes as well */
} accounts[CUDA_DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of them */

/* The kernels that wait for those of other ranks. */
static const enum cuda_kernel waiting[] = {CUDA_KERNEL_packets, CUDA_KERNEL_lines,
					   CUDA_KERNEL_messages};

static unsigned residency_less(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static unsigned residency_more(unsigned a, unsigned b)
{
	return a > b ? a : b;
}

/* Counts one block per multiprocessor, even if it could hold two: so a multiprocessor without a
 * waiting block has room for any block, whatever registers and shared memory its kernel needs. */
unsigned cuda_residency_most(const struct cuda_device *device)
{
	unsigned all = (unsigned)device->multiprocessors;

	for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
		if (device->blocks_at_once[waiting[i]] < device->multiprocessors)
			return 0;
	return device->has_mps ? 0
			       : residency_less(all - residency_more(all / LEFT_OF, 1), GRIDS_MOST);
}

static unsigned residency_count_free(const struct cuda_device *device)
{
	unsigned most = cuda_residency_most(device), taken = accounts[device->ordinal].taken;

	assert(taken <= most);
	return accounts[device->ordinal].sharing ? 0 : most - taken;
}

unsigned cuda_residency_free(const struct cuda_device *device)
{
	pthread_mutex_lock(&lock);
	unsigned free = residency_count_free(device);
	pthread_mutex_unlock(&lock);
	return free;
}

/* The first communicator gets seven tenths, each later one half of what is left: so several get
 * some, and on a large GPU the first one of a single rank gets all that a call can use. */
unsigned cuda_residency_share(unsigned most, unsigned free, unsigned ranks)
{
	unsigned share = (free == most ? most * 7 / 10 : free / 2) / ranks;

	if (free < ranks)
		return 0;
	return residency_less(residency_more(share, 1), CHANNELS_MOST);
}

unsigned cuda_residency_take(const struct cuda_device *device, unsigned wanted)
{
	pthread_mutex_lock(&lock);
	unsigned free = residency_count_free(device);
	bool is_first = accounts[device->ordinal].taken == 0;
	unsigned blocks = residency_less(wanted, is_first ? free : (free + 1) / 2);
	accounts[device->ordinal].taken += blocks;
	pthread_mutex_unlock(&lock);
	return blocks;
}

void cuda_residency_give(const struct cuda_device *device, unsigned blocks)
{
	pthread_mutex_lock(&lock);
	assert(blocks <= accounts[device->ordinal].taken);
	accounts[device->ordinal].taken -= blocks;
	pthread_mutex_unlock(&lock);
}

void cuda_residency_share_device(const struct cuda_device *device)
{
	pthread_mutex_lock(&lock);
	accounts[device->ordinal].sharing++;
	pthread_mutex_unlock(&lock);
}

void cuda_residency_unshare_device(const struct cuda_device *device)
{
	pthread_mutex_lock(&lock);
	assert(accounts[device->ordinal].sharing > 0);
	accounts[device->ordinal].sharing--;
	pthread_mutex_unlock(&lock);
}
