/* How many ranks a machine takes when nobody says so. */
#ifndef LAUNCH_DEVICES_H
#define LAUNCH_DEVICES_H

/* GPUs of this machine that ranks may use, or 0. It loads no driver. */
int devices_visible(void);
/* CPUs that this process may use, 1 at least. */
int devices_cpus(void);

#endif
