/* Locks of bytes of a file, one a device. */
#include "tests/cuda/driver/turn.h"

#include "tests/cuda/driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock; /* held while the file's lock is waited for */
	unsigned kernels;
} turns[MAX_GPUS] = {[0 ... MAX_GPUS - 1] = {PTHREAD_MUTEX_INITIALIZER, 0}};

static int file = -1;

void turn_open(void)
{
	if (settings.machine == NULL)
		return;
	file = open(settings.machine, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0)
		abort();
}

/* The locks are the process's, which loses them however it ends. Where two processes with two
 * devices each hold one and want the other, they would wait for ever, which no GPU does, since it
 * interrupts kernels: EDEADLK, and then both run. */
static void lock_byte(int gpu, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = gpu, .l_len = 1};

	while (fcntl(file, F_SETLKW, &lock) != 0 && errno == EINTR)
		;
}

void turn_take(int gpu)
{
	if (settings.machine == NULL)
		return;
	pthread_mutex_lock(&turns[gpu].lock);
	if (turns[gpu].kernels++ == 0)
		lock_byte(gpu, F_WRLCK);
	pthread_mutex_unlock(&turns[gpu].lock);
}

void turn_give(int gpu)
{
	if (settings.machine == NULL)
		return;
	pthread_mutex_lock(&turns[gpu].lock);
	if (--turns[gpu].kernels == 0)
		lock_byte(gpu, F_UNLCK);
	pthread_mutex_unlock(&turns[gpu].lock);
}
