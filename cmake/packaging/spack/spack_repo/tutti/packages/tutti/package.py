import pathlib

from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
except ImportError:
    pass  # before Spack 1.0 spack.package has them

CHECKOUT = pathlib.Path(__file__).resolve().parents[7]
OPTIONS = ("tls", "json", "hwloc", "verbs", "ucx", "cuda")


class Tutti(CMakePackage):
    """Collective communication for training code. Built from the git checkout that this file is in."""

    git = CHECKOUT.as_uri()
    license("BSD-3-Clause")

    version("main", branch="main")

    variant("tls", default=True, description="TLS over TCP")
    variant("json", default=True, description="Checkpoints, safetensors files, TF_CONFIG and merging traces")
    variant("hwloc", default=True, description="Binding of ranks by tuttirun")
    variant("verbs", default=False, description="InfiniBand and RoCE")
    variant("ucx", default=False, description="UCX")
    variant("cuda", default=False, description="Kernels for GPUs")

    generator("ninja")
    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type=("build", "run"))  # the manual pages; tutti-report, tutti-sweep and the Python package
    depends_on("libsodium")
    depends_on("openssl@3:", when="+tls")
    depends_on("jansson@2.12:", when="+json")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("rdma-core", when="+verbs")
    depends_on("ucx", when="+ucx")
    depends_on("cuda", when="+cuda")

    def cmake_args(self):
        found = [self.define_from_variant(f"TUTTI_{option.upper()}", option) for option in OPTIONS]
        return [self.define("TUTTI_TESTS", False), *found]

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", self.prefix.lib.python3.join("dist-packages"))
        env.set("LIBTUTTI", self.prefix.lib.join("libtutti.so.1"))
