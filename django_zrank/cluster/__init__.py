"""Redis Cluster and Valkey Cluster behind django-redis.

::

    "OPTIONS": {"CONNECTION_FACTORY": "django_zrank.cluster.ConnectionFactory", …}
"""

from .connections import ConnectionFactory

__all__ = ["ConnectionFactory"]
