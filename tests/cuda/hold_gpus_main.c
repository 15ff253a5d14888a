/* hold_gpus: keeps a context on each GPU until its standard input ends. Where nobody uses a GPU the
 * driver lets go of it, and the next program waits until it is there again: seconds on an H200 in a
 * virtual machine, and as long again for each of a job's processes. */
#include "gpu.h"

#include <stdio.h>

int main(void)
{
	if (!gpu_open())
		return 77;
	for (int i = 0; i < gpu_count(); i++)
		gpu_use(i);
	while (getchar() != EOF)
		;
	return 0;
}
